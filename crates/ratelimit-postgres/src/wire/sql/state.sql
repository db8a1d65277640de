-- What is known of meters.

-- The meters of these names, in their order; NULL for those that are not there.
--
-- One statement, so one snapshot. The lateral join looks each name up in the primary key whatever the statistics say.
CREATE OR REPLACE FUNCTION ratelimit.known_v1(ids bytea[])
RETURNS ratelimit.meters[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    single ratelimit.meters;
BEGIN
    IF cardinality(ids) = 1 THEN
        SELECT * INTO single FROM ratelimit.meters WHERE id = ids[1];
        RETURN ARRAY[single];
    END IF;
    RETURN (
        SELECT array_agg(meter ORDER BY asked.place)
        FROM unnest(ids) WITH ORDINALITY AS asked (id, place)
        LEFT JOIN LATERAL (SELECT * FROM ratelimit.meters AS meters WHERE meters.id = asked.id OFFSET 0) AS meter ON true
    );
END $$;

-- The state that a meter of this kind (and so many carried segments) can use: NULL if there is none or it belongs to
-- a meter of another shape, {-1} if it is no state at all.
CREATE OR REPLACE FUNCTION ratelimit.state_v1(meter ratelimit.meters, kind bigint, carried bigint)
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    state bigint[] := meter.state;
    length int := cardinality(state);
    sound boolean;
BEGIN
    IF meter.kind IS NULL OR meter.kind = -1 THEN
        RETURN NULL;
    END IF;
    sound := CASE meter.kind
        WHEN 0 THEN length >= 2 AND 0 <= ALL (state) AND 999999999999999 >= ALL (state[2:])
            AND state[1] <= 4611686018427387903
        WHEN 1 THEN CASE length
            WHEN 3 THEN ratelimit.sound_v1(1, state[1], state[2], state[3])
            ELSE ratelimit.bucket_sound_v1(state)
        END
        WHEN 2 THEN length = 0 OR (state[1] >= 0 AND state[length] >= state[1])
    END;
    IF sound IS NOT TRUE THEN
        RETURN '{-1}';
    ELSIF meter.kind <> kind OR (kind = 0 AND length <> carried + 2) THEN
        RETURN NULL;
    END IF;
    RETURN state;
END $$;
