-- One claim on one meter: to the function of its kind.
--
-- `claims` holds eight numbers for each claim, those of this one after place `at`: the meter's place in the call, its
-- kind, the cost, and then
--     window: quota, segment, shift, carried, strict
--     bucket: burst, interval, and for the fast path room (burst - cost, as time; -1 if it never fits) and drain (the cost,
--             as time), and the length of a step, zero if units drain continuously
--     log:    quota, span

-- Whether the claim fits: 1 or 0, or -1 if these numbers are not a valid state of this meter.
CREATE OR REPLACE FUNCTION ratelimit.fits_v1(
    state bigint[], now bigint, claims bigint[], at int
) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    kind bigint := claims[at + 2];
    cost bigint := claims[at + 3];
    sight bigint[];
BEGIN
    IF state[1] = -1 THEN
        RETURN -1;
    ELSIF cost = 0 AND (kind <> 1 OR claims[at + 4] > 0) THEN
        -- Only a bucket with a burst of zero refuses that, unless it is empty.
        RETURN 1;
    ELSIF kind = 0 THEN
        RETURN ratelimit.window_fits_v1(state, now, cost, claims[at + 4], claims[at + 5], claims[at + 6],
            claims[at + 7], claims[at + 8] = 1)::int;
    ELSIF kind = 1 THEN
        now := ratelimit.bucket_now_v1(state, now, claims[at + 8]);
        RETURN ratelimit.bucket_fits_v1(state, now, cost, claims[at + 4])::int;
    END IF;
    sight := ratelimit.log_sight_v1(state, now, cost, claims[at + 4], claims[at + 5]);
    RETURN (sight[2] + cost <= claims[at + 4])::int;
END $$;

-- The instant of a caller's clock on this server's, and `slack` microseconds more.
CREATE OR REPLACE FUNCTION ratelimit.until_v1(
    instant bigint, now bigint, here timestamptz, slack bigint
) RETURNS timestamptz LANGUAGE sql STABLE AS
    $$SELECT here + ((instant - now) / 1000 + slack) * interval '1 microsecond'$$;

-- The meter after a charge.
CREATE OR REPLACE FUNCTION ratelimit.charge_v1(
    meter ratelimit.meters, state bigint[], now bigint, claims bigint[], at int, here timestamptz, slack bigint
) RETURNS ratelimit.meters LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    cost bigint := claims[at + 3];
    a bigint := claims[at + 4];
    b bigint := claims[at + 5];
    c bigint := claims[at + 6];
    d bigint := claims[at + 7];
    step bigint;
    forget_at bigint;
BEGIN
    meter.kind := claims[at + 2];
    IF meter.kind = 0 THEN
        meter.state := ratelimit.window_charge_v1(state, now, cost, b, c, d);
        forget_at := ratelimit.window_end_v1(meter.state, b, c, d);
    ELSIF meter.kind = 1 THEN
        step := claims[at + 8];
        meter.state := ratelimit.bucket_charge_v1(state, ratelimit.bucket_now_v1(state, now, step), cost, b);
        FOR debt IN 2 .. cardinality(meter.state) BY 3 LOOP
            forget_at := greatest(forget_at, meter.state[debt]);
        END LOOP;
        IF step > 0 THEN
            -- The end of its step, but not beyond 2^62 - 1.
            forget_at := least(4611686018427387903, meter.state[1]
                + div((forget_at - meter.state[1])::numeric + step - 1, step) * step);
        END IF;
    ELSE
        meter.state := ratelimit.log_charge_v1(state, now, cost, a, b);
        forget_at := meter.state[cardinality(meter.state)] + b;
    END IF;
    -- The units of another limit may count for longer in a log: concurrency limits with different leases share one.
    meter.forget_at := greatest(
        CASE meter.kind WHEN 2 THEN meter.forget_at END, ratelimit.until_v1(forget_at, now, here, slack));
    RETURN meter;
END $$;
