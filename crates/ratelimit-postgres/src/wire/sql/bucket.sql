-- The bucket meter: the theoretical arrival times (TAT) of the generic cell rate algorithm, one for each rate.
--
-- A state is the newest instant of a charge and three numbers for each debt: its TAT, its interval and its receipt. See
-- table.sql. Debts are named by the place of their TAT.

-- Whether these numbers, more than three, can be the state of a bucket.
CREATE OR REPLACE FUNCTION ratelimit.bucket_sound_v1(state bigint[])
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    length CONSTANT int := cardinality(state);
    faster bigint := 0;
BEGIN
    IF length % 3 <> 1 OR length NOT BETWEEN 4 AND 49 THEN
        RETURN false;
    END IF;
    FOR place IN 3 .. length BY 3 LOOP
        IF state[place] <= faster OR state[place] > 316224000000000000 THEN
            RETURN false;
        END IF;
        faster := state[place];
    END LOOP;
    RETURN 0 <= ALL (state) AND state[1] <= 4611686018427387903;
END $$;

-- What units, at most 999999999999999, take to drain, at most 2^62 - 1 ns.
CREATE OR REPLACE FUNCTION ratelimit.bucket_drain_v1(units bigint, gap bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN least(units, 999999999999999) > 4611686018427387903 / gap THEN 4611686018427387903
        ELSE least(units, 999999999999999) * gap
    END
$$;

-- What the debts from this one on take to drain at its interval. A part of a nanosecond counts as a whole one.
CREATE OR REPLACE FUNCTION ratelimit.bucket_left_v1(state bigint[], debt int, seen bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    time bigint := greatest(state[debt] - seen, 0);
BEGIN
    FOR slower IN debt + 3 .. cardinality(state) BY 3 LOOP
        IF state[slower] > seen THEN
            time := greatest(time, div((state[slower] - seen)::numeric * state[debt + 1] + state[slower + 1] - 1,
                state[slower + 1]));
        END IF;
    END LOOP;
    RETURN time;
END $$;

-- What the units of this debt's very rate take: those that are not of slower ones.
CREATE OR REPLACE FUNCTION ratelimit.bucket_own_v1(state bigint[], debt int, seen bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    whole bigint := ratelimit.bucket_left_v1(state, debt, seen);
BEGIN
    state[debt] := seen; -- without its own units, the slower ones are left
    RETURN whole - ratelimit.bucket_left_v1(state, debt, seen);
END $$;

-- Where the debt of this interval is, or would be: after all faster ones.
CREATE OR REPLACE FUNCTION ratelimit.bucket_place_v1(state bigint[], gap bigint)
RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    debt int := 2;
BEGIN
    WHILE state[debt + 1] < gap LOOP
        debt := debt + 3;
    END LOOP;
    RETURN debt;
END $$;

-- The instant as of which a bucket is decided whose units drain in steps, counted from the instant of its state: the begin
-- of the step, or `now` if all have drained by then. A step of zero means that they drain continuously.
CREATE OR REPLACE FUNCTION ratelimit.bucket_now_v1(state bigint[], now bigint, step bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    begun bigint := greatest(now, state[1]);
BEGIN
    IF step = 0 OR state IS NULL THEN
        RETURN now;
    END IF;
    begun := begun - (begun - state[1]) % step;
    FOR debt IN 2 .. cardinality(state) BY 3 LOOP
        IF state[debt] > begun THEN
            RETURN begun;
        END IF;
    END LOOP;
    RETURN now;
END $$;

-- Whether the units fit beside all debts.
CREATE OR REPLACE FUNCTION ratelimit.bucket_fits_v1(state bigint[], now bigint, cost bigint, burst bigint)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    seen CONSTANT bigint := greatest(now, state[1]);
BEGIN
    IF cost > burst THEN
        RETURN false;
    END IF;
    FOR debt IN 2 .. coalesce(cardinality(state), 0) BY 3 LOOP
        IF state[debt] - seen > ratelimit.bucket_drain_v1(burst - cost, state[debt + 1]) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;

-- The state after a charge.
CREATE OR REPLACE FUNCTION ratelimit.bucket_charge_v1(state bigint[], now bigint, cost bigint, gap bigint)
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most CONSTANT bigint := 4611686018427387903;
    seen CONSTANT bigint := greatest(now, state[1]);
    drain CONSTANT bigint := ratelimit.bucket_drain_v1(cost, gap);
    becomes bigint[] := ARRAY[seen];
    own int;
BEGIN
    IF state IS NULL OR (cardinality(state) = 3 AND (state[3] = gap OR state[2] <= seen)) THEN
        RETURN ARRAY[seen, seen + least(least(greatest(state[2] - seen, 0), most) + drain, most), gap];
    ELSIF cardinality(state) = 3 THEN
        state := state || state[2];
    END IF;
    FOR debt IN 2 .. cardinality(state) BY 3 LOOP
        IF state[debt] > seen THEN
            becomes := becomes || state[debt:debt + 2];
        END IF;
    END LOOP;
    own := ratelimit.bucket_place_v1(becomes, gap);
    IF becomes[own + 1] IS DISTINCT FROM gap THEN
        becomes := becomes[:own - 1] || ARRAY[seen, gap, seen] || becomes[own:];
    END IF;
    becomes[own + 2] := least(becomes[own + 2], seen + (most - drain)) + drain;
    FOR debt IN 2 .. own BY 3 LOOP
        becomes[debt] := seen + least(least(ratelimit.bucket_left_v1(becomes, debt, seen), most)
            + ratelimit.bucket_drain_v1(cost, becomes[debt + 1]), most);
    END LOOP;
    IF cardinality(becomes) > 49 THEN
        -- The units of the second are in the first one, too, and drain as that does.
        becomes := becomes[:4] || becomes[8:];
    END IF;
    RETURN ratelimit.bucket_numbers_v1(becomes);
END $$;

-- The state after a refund: units of one rate drain in the order in which they came, so what of the charge has not drained
-- lies before its receipt in the line of them. If it may have begun a step, the step begins anew at `now`: see core's
-- meter/bucket.rs.
CREATE OR REPLACE FUNCTION ratelimit.bucket_refund_v1(
    state bigint[], now bigint, cost bigint, receipt bigint, gap bigint, step bigint, unqueued bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    begins CONSTANT bigint := greatest(now, state[1]);
    seen CONSTANT bigint := greatest(ratelimit.bucket_now_v1(state, now, step), state[1]);
    back bigint := ratelimit.bucket_drain_v1(cost, gap);
    before bigint;
    own int;
    line bigint;
    is_empty boolean := true;
BEGIN
    IF cardinality(state) = 3 THEN
        state := state || state[2];
    END IF;
    own := ratelimit.bucket_place_v1(state, gap);
    IF state[own + 1] IS DISTINCT FROM gap THEN
        RETURN ratelimit.bucket_numbers_v1(state);
    END IF;
    line := state[own + 2];
    before := ratelimit.bucket_own_v1(state, own, seen) - greatest(line - receipt, 0);
    back := least(back, before);
    -- Turns that were assigned after this charge stay as they are. `unqueued` is the largest number if nobody ever waits.
    IF back <= 0 OR unqueued < 9223372036854775807
            AND (cardinality(state) > 4 OR line > receipt AND state[2] - seen > unqueued) THEN
        RETURN ratelimit.bucket_numbers_v1(state);
    END IF;
    FOR debt IN 2 .. cardinality(state) BY 3 LOOP
        IF debt <= own THEN
            state[debt] := seen + greatest(greatest(state[debt] - seen, 0)
                - div(back::numeric * state[debt + 1], gap)::bigint, 0);
        END IF;
        is_empty := is_empty AND state[debt] <= seen;
    END LOOP;
    -- A step of the largest number never ends.
    IF back = before AND NOT is_empty AND step > 0 AND step < 9223372036854775807 THEN
        FOR debt IN 2 .. cardinality(state) BY 3 LOOP
            state[debt] := begins + greatest(state[debt] - seen, 0);
        END LOOP;
        state[1] := begins;
    ELSE
        state[own + 2] := greatest(line - back, 0);
    END IF;
    RETURN ratelimit.bucket_numbers_v1(state);
END $$;

-- The shorter form of a state whose only debt ends with its receipt.
CREATE OR REPLACE FUNCTION ratelimit.bucket_numbers_v1(state bigint[])
RETURNS bigint[] LANGUAGE sql IMMUTABLE AS
    'SELECT CASE WHEN cardinality(state) = 4 AND state[2] = state[4] THEN state[:3] ELSE state END';
