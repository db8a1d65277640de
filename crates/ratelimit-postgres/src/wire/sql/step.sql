-- The state `s1`, `s2`, `s3` after one claim: NULL if the claim does not fit, or if the state is not one for the fast path.
-- Included in two functions of take.sql, because calling a function takes as long as this.
        becomes := NULL;
        IF held IS NULL THEN
            IF sort = 0 AND cost <= quota THEN
                becomes := CASE carried WHEN 0 THEN ARRAY[asked, cost] ELSE ARRAY[asked, cost, 0] END;
            ELSIF sort = 1 AND shift >= 0 THEN
                becomes := ARRAY[asked, asked + carried, gap];
            END IF;
        ELSIF ratelimit.shape_v1(held, length, sort, carried) = 1 AND ratelimit.sound_v1(sort, s1, s2, coalesce(s3, 0)) THEN
            now := greatest(asked, s1);
            IF sort = 1 THEN
                -- Not known if it drains at another rate.
                owed := CASE WHEN s2 <= now THEN 0 WHEN s3 = gap THEN s2 - now END;
                IF owed <= shift THEN
                    becomes := ARRAY[now, now + owed + carried, gap];
                END IF;
            ELSE
                aged := (now + shift) / gap - (s1 + shift) / gap;
                current := CASE aged WHEN 0 THEN s2 ELSE 0 END;
                previous := CASE aged WHEN 0 THEN coalesce(s3, 0) WHEN 1 THEN carried * s2 ELSE 0 END;
                room := quota - cost - current;
                fits := previous <= room;
                IF NOT fits AND room >= 0 AND strictly = 0 THEN
                    fits := previous::numeric * (gap - (now + shift) % gap) <= room::numeric * gap;
                END IF;
                IF fits THEN
                    becomes := CASE carried
                        WHEN 0 THEN ARRAY[now, current + cost] ELSE ARRAY[now, current + cost, previous] END;
                END IF;
            END IF;
        END IF;
