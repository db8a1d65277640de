-- The bucket meter: the theoretical arrival time (TAT) of the generic cell rate algorithm.

-- The nanoseconds of debt that have not drained at `seen`, which is not before s1; none without a state.
--
-- If the interval has changed since the state was written, the units of that time are kept: those begun count whole, and no
-- more than the bucket now holds. They drain at the new rate since then, and are gone at the latest when they would have
-- been at the old one.
CREATE OR REPLACE FUNCTION ratelimit.bucket_debt_v1(
    s1 bigint, s2 bigint, s3 bigint, seen bigint, burst bigint, gap bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN s2 > seen THEN CASE s3
            WHEN gap THEN s2 - seen
            ELSE greatest(s1 + least((s2 - s1 - 1) / greatest(s3, 1) + 1, burst) * gap - seen, 0)
        END
        ELSE 0
    END
$$;

-- The state after a charge of units that take `drain` nanoseconds.
CREATE OR REPLACE FUNCTION ratelimit.bucket_charge_v1(
    state bigint[], now bigint, drain bigint, burst bigint, gap bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most CONSTANT bigint := 4611686018427387903;
    seen bigint := greatest(now, state[1]);
    debt bigint := ratelimit.bucket_debt_v1(state[1], state[2], state[3], seen, burst, gap);
BEGIN
    RETURN ARRAY[seen, seen + least(debt + drain, most), gap];
END $$;

-- The state after a refund: units drain in the order in which they came, so what of the charge has not drained lies
-- before its receipt.
CREATE OR REPLACE FUNCTION ratelimit.bucket_refund_v1(
    state bigint[], now bigint, drain bigint, receipt bigint, burst bigint, gap bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    seen bigint := greatest(now, state[1]);
    debt bigint := ratelimit.bucket_debt_v1(state[1], state[2], state[3], seen, burst, gap);
    undrained bigint := least(drain, receipt - seen);
BEGIN
    IF undrained <= 0 OR debt = 0 THEN
        RETURN state;
    END IF;
    RETURN ARRAY[state[1], seen + greatest(debt - undrained, 0), gap];
END $$;
