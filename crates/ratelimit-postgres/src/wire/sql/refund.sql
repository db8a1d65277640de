-- Refunds units, and deletes meters.

-- ids      the names of the meters in ascending order, without repetition
-- refunds  eight numbers for each: the meter's place in `ids`, its kind, the cost, and then
--          window: the number of the charge's segment, segment, shift, carried
--          bucket: interval, receipt, step, none, what may be in the bucket before somebody waits for a turn
--          log:    receipt
CREATE OR REPLACE FUNCTION ratelimit.refund_v1(
    ids bytea[], now bigint, refunds bigint[], by_server boolean
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE @settings@ AS $$
DECLARE
    held ratelimit.meters[];
    dirty boolean[];
    meter int;
    state bigint[];
    began bigint;
BEGIN
    -- Locks and reads in one statement, and writes only what this has returned: a meter that another transaction inserts after
    -- it is not locked.
    WITH locked AS (
        SELECT id, meters AS meter FROM ratelimit.meters AS meters WHERE id = ANY (ids) ORDER BY id FOR UPDATE
    )
    SELECT array_agg(locked.meter ORDER BY asked.place) INTO held
        FROM unnest(ids) WITH ORDINALITY AS asked (id, place) LEFT JOIN locked ON locked.id = asked.id;
    IF by_server THEN
        now := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000;
    END IF;
    FOR at IN 0 .. cardinality(refunds) - 8 BY 8 LOOP
        meter := refunds[at + 1];
        state := ratelimit.state_v1(held[meter], refunds[at + 2], refunds[at + 7]);
        IF state[1] = -1 THEN
            RETURN '{2}';
        END IF;
        CONTINUE WHEN state IS NULL OR refunds[at + 3] = 0;
        -- If a step begins anew, the meter counts for that much longer.
        began := CASE refunds[at + 2] WHEN 1 THEN greatest(state[1], ratelimit.bucket_now_v1(state, now, refunds[at + 6])) END;
        held[meter].state := CASE refunds[at + 2]
            WHEN 0 THEN ratelimit.window_refund_v1(state, refunds[at + 3], refunds[at + 4], refunds[at + 5],
                refunds[at + 6], refunds[at + 7])
            WHEN 1 THEN ratelimit.bucket_refund_v1(state, now, refunds[at + 3], refunds[at + 5], refunds[at + 4],
                refunds[at + 6], refunds[at + 8])
            ELSE ratelimit.log_refund_v1(state, refunds[at + 3], refunds[at + 4])
        END;
        IF (held[meter].state)[1] > began THEN
            held[meter].forget_at := held[meter].forget_at
                + ((held[meter].state)[1] - began) / 1000 * interval '1 microsecond' + interval '1 microsecond';
        END IF;
        dirty[meter] := true;
    END LOOP;
    FOR place IN 1 .. cardinality(ids) LOOP
        IF dirty[place] THEN
            UPDATE ratelimit.meters SET forget_at = (held[place]).forget_at, state = (held[place]).state
                WHERE id = ids[place];
        END IF;
    END LOOP;
    RETURN '{}';
END $$;

CREATE OR REPLACE FUNCTION ratelimit.reset_v1(ids bytea[])
RETURNS bigint[] LANGUAGE plpgsql VOLATILE @settings@ AS $$
BEGIN
    -- One statement, as above: it must not lock a meter that another transaction has inserted meanwhile, because that would not
    -- be in ascending order.
    WITH locked AS (SELECT id FROM ratelimit.meters WHERE id = ANY (ids) ORDER BY id FOR UPDATE)
    DELETE FROM ratelimit.meters AS meters USING locked WHERE meters.id = locked.id;
    RETURN '{}';
END $$;
