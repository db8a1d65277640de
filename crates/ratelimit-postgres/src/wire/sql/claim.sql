-- Decides slices of claims and writes what was charged. The whole of a call is this function, in one transaction.
--
-- ids     the names of all meters, without repetition: first, in ascending order, those that may be charged
-- writes  how many of them may be charged
--
-- It first reads without locks. If nothing has to be written, the reply is that of this snapshot: a key that is over its limit
-- is refused without waiting for other transactions. A single meter is then written if it has not changed. Otherwise all
-- meters that may be charged are locked in ascending order, so that no two calls wait for each other, then read and decided
-- again.
CREATE OR REPLACE FUNCTION ratelimit.claim_v1(
    ids bytea[], writes int, slices bigint[], claims bigint[], by_server boolean, slack bigint
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE @settings@ AS $$
DECLARE
    was ratelimit.meters[] := ratelimit.known_v1(ids);
    decided record;
    meter ratelimit.meters;
    placed bigint;
BEGIN
    decided := ratelimit.decide_v1(was, slices, claims, by_server, slack);
    IF NOT (true = ANY (decided.dirty)) OR (writes = 1 AND ratelimit.swap_v1(ids[1], was[1], decided.held[1])) THEN
        RETURN decided.answers;
    END IF;
    INSERT INTO ratelimit.meters AS meters (id, forget_at, kind, state)
        SELECT id, clock_timestamp(), -1, '{}' FROM unnest(ids[1:writes]) AS id ORDER BY id
        ON CONFLICT (id) DO UPDATE SET kind = meters.kind WHERE false; -- locks, and writes nothing
    GET DIAGNOSTICS placed = ROW_COUNT;
    decided := ratelimit.decide_v1(ratelimit.known_v1(ids), slices, claims, by_server, slack);
    FOR place IN 1 .. writes LOOP
        IF decided.dirty[place] THEN
            meter := decided.held[place];
            UPDATE ratelimit.meters
                SET forget_at = meter.forget_at, kind = meter.kind, state = meter.state
                WHERE id = ids[place];
        END IF;
    END LOOP;
    IF placed > 0 THEN
        DELETE FROM ratelimit.meters WHERE id = ANY (ids[1:writes]) AND kind = -1;
    END IF;
    RETURN decided.answers;
END $$;

-- Writes a meter unless it has changed; returns whether it did.
CREATE OR REPLACE FUNCTION ratelimit.swap_v1(
    name bytea, was ratelimit.meters, becomes ratelimit.meters
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF was.id IS NULL THEN
        INSERT INTO ratelimit.meters (id, forget_at, kind, state)
            VALUES (name, becomes.forget_at, becomes.kind, becomes.state)
            ON CONFLICT (id) DO NOTHING;
    ELSE
        UPDATE ratelimit.meters
            SET forget_at = becomes.forget_at, kind = becomes.kind, state = becomes.state
            WHERE id = name AND kind = was.kind AND state = was.state;
    END IF;
    RETURN FOUND;
END $$;
