-- Decides slices of claims on states that are at hand, in their order, each on what those before it have charged.
--
-- slices   three numbers for each: the caller's time, the mode (0 peek, 1 charge, 2 force), the number of claims
-- claims   see meter.sql
-- answers  for each slice: 0 refused, 1 admitted or 2 corrupt; the time; then for each of its claims a length and so many
--          numbers: the state before the decision, or of a log what there is to see of it after
-- dirty    which meters were charged
CREATE OR REPLACE FUNCTION ratelimit.decide_v1(
    INOUT held ratelimit.meters[], slices bigint[], claims bigint[], by_server boolean, slack bigint,
    OUT answers bigint[], OUT dirty boolean[]
) RETURNS record LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    here CONSTANT timestamptz := clock_timestamp();
    now bigint;
    number int;
    outcome int;
    charging boolean;
    at int := 0;
    meter int;
    cost bigint;
    state bigint[];
BEGIN
    answers := '{}';
    dirty := array_fill(false, ARRAY[cardinality(held)]);
    FOR part IN 0 .. cardinality(slices) / 3 - 1 LOOP
        now := CASE WHEN by_server THEN (extract(epoch FROM here) * 1000000)::bigint * 1000
            ELSE slices[part * 3 + 1] END;
        number := slices[part * 3 + 3];
        outcome := 1;
        FOR place IN 0 .. number - 1 LOOP
            meter := claims[at + place * 8 + 1];
            state := ratelimit.state_v1(held[meter], claims[at + place * 8 + 2], claims[at + place * 8 + 7]);
            outcome := least(outcome, ratelimit.fits_v1(state, now, claims, at + place * 8));
        END LOOP;
        outcome := CASE WHEN outcome < 0 THEN 2 WHEN slices[part * 3 + 2] = 2 THEN 1 ELSE outcome END;
        charging := outcome = 1 AND slices[part * 3 + 2] > 0;
        answers := answers || outcome::bigint;
        answers := answers || now;
        FOR place IN 1 .. number LOOP
            meter := claims[at + 1];
            cost := claims[at + 3];
            IF number > 1 THEN
                state := ratelimit.state_v1(held[meter], claims[at + 2], claims[at + 7]);
            END IF;
            IF claims[at + 2] < 2 THEN
                answers := answers || coalesce(cardinality(state), 0)::bigint;
                answers := answers || state;
            END IF;
            IF charging AND cost > 0 THEN
                held[meter] := ratelimit.charge_v1(held[meter], state, now, claims, at, here, slack);
                dirty[meter] := true;
                state := (held[meter]).state;
                cost := 0;
            END IF;
            IF claims[at + 2] = 2 THEN
                answers := answers || 4::bigint;
                answers := answers || ratelimit.log_sight_v1(state, now, cost, claims[at + 4], claims[at + 5]);
            END IF;
            at := at + 8;
        END LOOP;
    END LOOP;
END $$;
