-- Charges that need no more than one meter each: the short way, for windows of up to one carried segment and for buckets.
--
-- Claims are grouped by their meters, and a meter's claims are decided one after another. Each is eight numbers:
-- the caller's time (-1 for the server's), and what stands in meter.sql from the kind on.

-- The state of a meter after its claims from number `first` to `last`, those that do not fit left out. NULL if none fits, or
-- if what is there is no state of such a meter.
CREATE OR REPLACE FUNCTION ratelimit.run_v1(
    held smallint, length int, s1 bigint, s2 bigint, s3 bigint, claims bigint[], first int, last int, clock bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most CONSTANT bigint := 999999999999999;
    kind CONSTANT bigint := claims[first * 8 - 6];
    gap CONSTANT bigint := claims[first * 8 - 3]; -- the segment, or the interval
    shift CONSTANT bigint := claims[first * 8 - 2];
    carried CONSTANT bigint := claims[first * 8 - 1];
    taken boolean := false;
    at int := first * 8 - 8;
    now bigint;
    aged bigint;
    current bigint;
    previous bigint;
    room bigint;
BEGIN
    IF held IS NULL THEN
        s1 := 0;
        s2 := 0;
        s3 := CASE kind WHEN 1 THEN gap ELSE 0 END;
    ELSIF held <> kind OR length <> (CASE kind WHEN 1 THEN 3 ELSE carried + 2 END) THEN
        RETURN NULL;
    ELSIF (s1 BETWEEN 0 AND 4611686018427387903 AND s2 >= 0 AND (kind = 1 OR s2 <= most)
        AND coalesce(s3, length - 2) >= 0 AND (kind = 1 OR coalesce(s3, 0) <= most)) IS NOT TRUE THEN
        RETURN NULL;
    END IF;
    FOR part IN first .. last LOOP
        now := greatest(coalesce(clock, claims[at + 1]), s1);
        IF kind = 1 THEN
            aged := greatest(s2 - now, 0); -- here: the debt
            IF claims[at + 5] <> s3 AND aged > 0 THEN
                aged := (s2 - s1 - 1) / greatest(s3, 1) + 1;
                aged := greatest(s1 + least(aged, claims[at + 4]) * claims[at + 5] - now, 0);
            END IF;
            IF aged <= claims[at + 6] THEN
                s1 := now;
                s2 := now + aged + claims[at + 7];
                s3 := claims[at + 5];
                taken := true;
            END IF;
        ELSE
            aged := (now + shift) / gap - (s1 + shift) / gap;
            current := CASE aged WHEN 0 THEN s2 ELSE 0 END;
            previous := CASE WHEN carried = 0 THEN 0 WHEN aged = 0 THEN s3 WHEN aged = 1 THEN s2 ELSE 0 END;
            room := claims[at + 4] - claims[at + 3] - current;
            IF claims[at + 8] = 1 THEN
                room := room - previous;
            ELSIF room >= 0 AND previous > room
                AND previous::numeric * (gap - (now + shift) % gap) > room::numeric * gap THEN
                room := -1;
            END IF;
            IF room >= 0 THEN
                s1 := now;
                s2 := current + claims[at + 3];
                s3 := previous;
                taken := true;
            END IF;
        END IF;
        at := at + 8;
    END LOOP;
    IF NOT taken THEN
        RETURN NULL;
    ELSIF kind = 0 AND carried = 0 THEN
        RETURN ARRAY[s1, s2];
    END IF;
    RETURN ARRAY[s1, s2, s3];
END $$;

-- When a state that claim number `last` has left is as good as none.
CREATE OR REPLACE FUNCTION ratelimit.end_v1(state bigint[], claims bigint[], last int)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE claims[last * 8 - 6]
        WHEN 1 THEN state[2]
        ELSE ((state[1] + claims[last * 8 - 2]) / claims[last * 8 - 3] + claims[last * 8 - 1] + 1)
            * claims[last * 8 - 3] - claims[last * 8 - 2]
    END
$$;

-- What there is for claim number `last`: 0 nothing, 1 a state of its kind, 2 anything else.
CREATE OR REPLACE FUNCTION ratelimit.shape_v1(held smallint, state bigint[], claims bigint[], last int)
RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN held IS NULL THEN 0
        WHEN held = claims[last * 8 - 6] AND cardinality(state)
            = CASE held WHEN 1 THEN 3 ELSE claims[last * 8 - 1] + 2 END THEN 1
        ELSE 2
    END
$$;

-- Decides claims on the meters `ids`, which are in ascending order and without repetition, and writes those that were
-- charged and still are as they were read.
--
-- lasts  the number of the last claim on each meter
-- clock  the time, if it is the server's
-- shape  for each meter what it was, see shape_v1; a, b and c are the numbers of that state
-- done   the meters that were written
--
-- What should have been written and was not has been changed by somebody else meanwhile: it is decided the long way then.
CREATE OR REPLACE FUNCTION ratelimit.take_v1(
    ids bytea[], lasts int[], claims bigint[], by_server boolean, slack bigint,
    OUT clock bigint, OUT shape int[], OUT a bigint[], OUT b bigint[], OUT c bigint[], OUT done bytea[]
) RETURNS record LANGUAGE plpgsql VOLATILE @settings@ AS $$
DECLARE
    here timestamptz;
    gone boolean;
BEGIN
    here := clock_timestamp();
    IF by_server THEN
    clock := (extract(epoch FROM here) * 1000000)::bigint * 1000;
    END IF;
    WITH seen AS MATERIALIZED (
        SELECT asked.id, asked.place, meter.kind, meter.state AS was,
            ratelimit.run_v1(meter.kind, cardinality(meter.state), meter.state[1], meter.state[2], meter.state[3],
                claims, coalesce(lasts[asked.place - 1], 0) + 1, lasts[asked.place], clock) AS state
        FROM unnest(ids) WITH ORDINALITY AS asked (id, place)
        LEFT JOIN LATERAL (
            SELECT * FROM ratelimit.meters AS meters WHERE meters.id = asked.id OFFSET 0
        ) AS meter ON true
    ), written AS (
        INSERT INTO ratelimit.meters AS meters (id, forget_at, kind, state, was)
        SELECT id,
            ratelimit.until_v1(
                ratelimit.end_v1(state, claims, lasts[place]),
                coalesce(clock, claims[lasts[place] * 8 - 7]), here, slack),
            claims[lasts[place] * 8 - 6], state, was
        FROM seen WHERE state IS NOT NULL ORDER BY id
        ON CONFLICT (id) DO UPDATE SET forget_at = excluded.forget_at, state = excluded.state
            WHERE meters.kind = excluded.kind AND meters.state = excluded.was
        RETURNING id, was
    )
    SELECT array_agg(ratelimit.shape_v1(kind, was, claims, lasts[place])), array_agg(was[1]), array_agg(was[2]), array_agg(was[3]),
        (SELECT array_agg(id) FROM written), (SELECT bool_or(written.was IS NOT NULL) FROM written)
        INTO shape, a, b, c, done, gone
        FROM seen;
    IF gone THEN
        RAISE EXCEPTION 'a meter has gone between the look and the charge' USING ERRCODE = 'RL001';
    END IF;
END $$;

-- The same for one meter, which is faster with several small statements than with one that can do everything. If somebody
-- has changed it meanwhile it is locked and decided again.
CREATE OR REPLACE FUNCTION ratelimit.take_one_v1(
    name bytea, claims bigint[], by_server boolean, slack bigint,
    OUT clock bigint, OUT shape int, OUT a bigint, OUT b bigint, OUT c bigint, OUT done boolean
) RETURNS record LANGUAGE plpgsql VOLATILE @settings@ AS $$
DECLARE
    number CONSTANT int := cardinality(claims) / 8;
    here timestamptz;
    held smallint;
    before bigint[];
    becomes bigint[];
    until timestamptz;
BEGIN
    done := false;
    FOR attempt IN 1 .. 2 LOOP
        SELECT kind, state INTO held, before FROM ratelimit.meters WHERE id = name;
        here := clock_timestamp();
        IF by_server THEN
            clock := (extract(epoch FROM here) * 1000000)::bigint * 1000;
        END IF;
        a := before[1];
        b := before[2];
        c := before[3];
        becomes := ratelimit.run_v1(held, cardinality(before), a, b, c, claims, 1, number, clock);
        EXIT WHEN becomes IS NULL;
        until := ratelimit.until_v1(
            ratelimit.end_v1(becomes, claims, number), coalesce(clock, claims[number * 8 - 7]), here, slack);
        IF held IS NULL THEN
            INSERT INTO ratelimit.meters (id, forget_at, kind, state) VALUES (name, until, claims[2], becomes)
                ON CONFLICT (id) DO NOTHING;
        ELSE
            UPDATE ratelimit.meters SET forget_at = until, state = becomes
                WHERE id = name AND kind = held AND state = before;
        END IF;
        done := FOUND;
        EXIT WHEN done OR attempt = 2;
        PERFORM FROM ratelimit.meters WHERE id = name FOR UPDATE;
    END LOOP;
    shape := ratelimit.shape_v1(held, before, claims, number);
END $$;
