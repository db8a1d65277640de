-- The log meter: the instant of every admitted unit.

-- How many of the oldest units have left.
CREATE OR REPLACE FUNCTION ratelimit.log_gone_v1(
    state bigint[], seen bigint, span bigint
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    low int := 0;
    high int := coalesce(cardinality(state), 0);
    middle int;
BEGIN
    IF high = 0 OR state[1] + span >= seen THEN
        RETURN 0;
    END IF;
    WHILE low < high LOOP
        middle := (low + high) / 2;
        IF state[middle + 1] + span < seen THEN
            low := middle + 1;
        ELSE
            high := middle;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- All that a decision needs to know: its instant, the units in the window, the instant of the newest, and of the unit
-- with whose leaving `cost` would fit (-1 where there is none).
CREATE OR REPLACE FUNCTION ratelimit.log_sight_v1(
    state bigint[], now bigint, cost bigint, quota bigint, span bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    units bigint := coalesce(cardinality(state), 0);
    newest bigint := state[units];
    seen bigint := greatest(now, newest);
    gone bigint := ratelimit.log_gone_v1(state, seen, span);
    live bigint := units - gone;
    blocker bigint := -1;
BEGIN
    IF cost <= quota AND live + cost > quota THEN
        blocker := coalesce(state[gone + live + cost - quota], -1);
    END IF;
    RETURN ARRAY[seen, live, CASE WHEN live > 0 THEN newest ELSE -1 END, blocker];
END $$;

-- The state after a charge: only the newest `quota` units are kept, older ones cannot decide anything.
CREATE OR REPLACE FUNCTION ratelimit.log_charge_v1(
    state bigint[], now bigint, cost bigint, quota bigint, span bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    units bigint := coalesce(cardinality(state), 0);
    seen bigint := greatest(now, state[units]);
    added bigint := least(cost, quota);
    gone bigint := greatest(ratelimit.log_gone_v1(state, seen, span), units + added - quota);
BEGIN
    IF gone >= units THEN
        RETURN array_fill(seen, ARRAY[added::int]);
    ELSIF added = 1 THEN
        RETURN state[gone + 1:units] || seen;
    END IF;
    RETURN state[gone + 1:units] || array_fill(seen, ARRAY[added::int]);
END $$;

-- The state after a refund of units that were charged at `receipt`.
CREATE OR REPLACE FUNCTION ratelimit.log_refund_v1(
    state bigint[], cost bigint, receipt bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    units bigint := coalesce(cardinality(state), 0);
    before bigint := ratelimit.log_gone_v1(state, receipt, 0);
    same bigint := ratelimit.log_gone_v1(state, receipt + 1, 0) - before;
BEGIN
    RETURN coalesce(state[1:before], '{}') || coalesce(state[before + least(cost, same) + 1:units], '{}');
END $$;
