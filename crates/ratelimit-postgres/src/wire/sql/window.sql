-- The window meter: a count for each segment of time.

-- Whether `cost` units fit: oldest * (segment - elapsed) <= (quota - whole - cost) * segment.
CREATE OR REPLACE FUNCTION ratelimit.window_fits_v1(
    state bigint[], now bigint, cost bigint, quota bigint,
    segment bigint, shift bigint, carried bigint, strict boolean
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    seen bigint := greatest(now, state[1]) + shift;
    aged bigint := seen / segment - (state[1] + shift) / segment;
    last bigint := 2 + carried - aged; -- where the oldest segment that still counts stands
    oldest bigint := 0;
    room bigint := quota - cost;
BEGIN
    IF cost = 0 THEN
        RETURN true;
    END IF;
    IF NOT strict AND last >= 2 THEN
        oldest := state[last];
        last := last - 1;
    END IF;
    IF last = 2 THEN
        room := room - state[2];
    ELSIF last > 2 THEN
        room := room - (SELECT sum(units)::bigint FROM unnest(state[2:last]) AS units);
    END IF;
    IF room < 0 OR oldest <= room THEN
        RETURN room >= 0;
    END IF;
    RETURN oldest::numeric * (segment - seen % segment) <= room::numeric * segment;
END $$;

-- The state after a charge.
CREATE OR REPLACE FUNCTION ratelimit.window_charge_v1(
    state bigint[], now bigint, cost bigint, segment bigint, shift bigint, carried bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most CONSTANT bigint := 999999999999999;
    seen bigint := greatest(now, state[1]);
    aged bigint := (seen + shift) / segment - (state[1] + shift) / segment;
BEGIN
    IF state IS NULL OR aged > carried THEN
        RETURN ARRAY[greatest(now, state[1]), least(cost, most)] || array_fill(0::bigint, ARRAY[carried::int]);
    ELSIF aged = 0 THEN
        state[1] := seen;
        state[2] := least(state[2] + cost, most);
        RETURN state;
    END IF;
    RETURN ARRAY[seen, least(cost, most)] || array_fill(0::bigint, ARRAY[(aged - 1)::int])
        || state[2:2 + carried - aged];
END $$;

-- When the segment of the newest charge has left.
CREATE OR REPLACE FUNCTION ratelimit.window_end_v1(
    state bigint[], segment bigint, shift bigint, carried bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    'SELECT ((state[1] + shift) / segment + carried + 1) * segment - shift';

-- The state after a refund of units that were charged in the segment `index`.
CREATE OR REPLACE FUNCTION ratelimit.window_refund_v1(
    state bigint[], cost bigint, index bigint, segment bigint, shift bigint, carried bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    age bigint := (state[1] + shift) / segment - index;
BEGIN
    IF age BETWEEN 0 AND carried THEN
        state[2 + age] := greatest(state[2 + age] - cost, 0);
    END IF;
    RETURN state;
END $$;
