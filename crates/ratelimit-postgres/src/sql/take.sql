-- Charges that need no more than one meter each: the short way, for windows of up to one carried segment and for buckets.
--
-- Claims are grouped by their meters, and a meter's claims are decided one after another. Each is eight numbers:
-- the caller's time (-1 for the server's), and what stands in meter.sql from the kind on.

-- What there is for a claim of this kind: 0 nothing, 1 a state of its kind, 2 anything else.
CREATE OR REPLACE FUNCTION ratelimit.shape_v1(held smallint, length int, kind bigint, carried bigint)
RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN held IS NULL THEN 0
        WHEN held = kind AND length = CASE kind WHEN 1 THEN 3 ELSE carried + 2 END THEN 1
        ELSE 2
    END
$$;

-- Whether the numbers of a state of this kind can be its own. With others nothing may be worked out: it might not fit a number.
CREATE OR REPLACE FUNCTION ratelimit.sound_v1(kind bigint, s1 bigint, s2 bigint, s3 bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT s1 BETWEEN 0 AND 4611686018427387903 AND s2 >= 0 AND s3 >= 0
        AND (kind = 1 OR (s2 <= 999999999999999 AND s3 <= 999999999999999))
$$;

-- When a state that begins with these numbers is as good as none.
CREATE OR REPLACE FUNCTION ratelimit.end_v1(
    s1 bigint, s2 bigint, kind bigint, gap bigint, shift bigint, carried bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE kind WHEN 1 THEN s2 ELSE ((s1 + shift) / gap + carried + 1) * gap - shift END
$$;

-- The state of a meter after claims number `first` to `last`, those that do not fit left out. NULL if none fits, or if what
-- is there is no state of such a meter.
CREATE OR REPLACE FUNCTION ratelimit.run_v1(
    held smallint, length int, s1 bigint, s2 bigint, s3 bigint, claims bigint[], first int, last int, clock bigint
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    asked bigint;
    sort CONSTANT bigint := claims[first * 8 - 6];
    cost bigint;
    quota bigint;
    gap bigint;
    shift bigint;
    carried bigint;
    strictly bigint;
    @step variables@
    state bigint[];
BEGIN
    FOR at IN first * 8 - 8 .. last * 8 - 8 BY 8 LOOP
        asked := coalesce(clock, claims[at + 1]);
        cost := claims[at + 3];
        quota := claims[at + 4];
        gap := claims[at + 5];
        shift := claims[at + 6];
        carried := claims[at + 7];
        strictly := claims[at + 8];
@step@
        IF becomes IS NOT NULL THEN
            held := sort;
            length := cardinality(becomes);
            s1 := becomes[1];
            s2 := becomes[2];
            s3 := becomes[3];
            state := becomes;
        END IF;
    END LOOP;
    RETURN state;
END $$;

-- Decides claims on the meters `ids`, which are in ascending order and without repetition, and writes in that order those
-- that were charged and still are as they were read.
--
-- lasts   the number of the last claim on each meter
-- clock   the time, if it is the server's
-- shapes  for each meter what it was, see shape_v1; a, b and c are the numbers of that state
-- done    the places of the meters that were written, if all of them were known
-- put     if not, their names in ascending order
--
-- What should have been written and was not has been changed by somebody else meanwhile: it is decided the long way then.
--
-- Rows that are known are updated where they were seen, which is faster than to look for each by its name once more. If one
-- has to be added, all go through one INSERT: first the ones and then the others would be no ascending order, and two calls
-- might wait for each other. A meter with one claim, as nearly all are in a call of many meters, is decided as in step.sql but
-- without a function, which would be a sixth of what the call takes.
CREATE OR REPLACE FUNCTION ratelimit.take_v1(
    ids bytea[], lasts int[], claims bigint[], by_server boolean, slack bigint,
    OUT clock bigint, OUT shapes int[], OUT a bigint[], OUT b bigint[], OUT c bigint[], OUT done int[], OUT put bytea[]
) RETURNS record LANGUAGE plpgsql VOLATILE @settings@ AS $$
DECLARE
    here CONSTANT timestamptz := clock_timestamp();
    gone boolean;
BEGIN
    IF by_server THEN
        clock := (extract(epoch FROM here) * 1000000)::bigint * 1000;
    END IF;
    WITH seen AS MATERIALIZED (
        SELECT id, place, spot, held, was, s1, s2, s3, asked, kind, gap, shift, carried, shape,
            CASE
                WHEN first < last THEN ratelimit.run_v1(held, length, s1, s2, s3, claims, first, last, clock)
                WHEN shape = 2 OR (shape = 1 AND NOT sound) THEN NULL
                WHEN kind = 1 THEN CASE WHEN current <= shift THEN ARRAY[now, now + current + carried, gap] END
                WHEN room < current THEN NULL
                WHEN previous > room - current
                    AND (strictly = 1 OR previous::numeric * (gap - (now + shift) % gap) > (room - current)::numeric * gap)
                    THEN NULL
                WHEN carried = 0 THEN ARRAY[now, current + cost]
                ELSE ARRAY[now, current + cost, previous]
            END AS state
        FROM (
            SELECT *, quota - cost AS room,
                CASE
                    WHEN kind = 1 AND sound THEN ratelimit.bucket_debt_v1(s1, s2, s3, now, quota, gap)
                    ELSE CASE aged WHEN 0 THEN s2 ELSE 0 END
                END AS current,
                CASE aged WHEN 0 THEN coalesce(s3, 0) WHEN 1 THEN carried * s2 ELSE 0 END AS previous
            FROM (
                SELECT *, ratelimit.shape_v1(held, length, kind, carried) AS shape,
                    CASE WHEN kind = 0 AND sound THEN (now + shift) / gap - (s1 + shift) / gap END AS aged
                FROM (
                    SELECT given.id, given.place::int, given.last, coalesce(lasts[given.place - 1], 0) + 1 AS first, meter.*,
                        coalesce(clock, claims[last * 8 - 7]) AS asked,
                        greatest(clock, claims[last * 8 - 7], s1) AS now,
                        claims[last * 8 - 6] AS kind, claims[last * 8 - 5] AS cost, claims[last * 8 - 4] AS quota,
                        claims[last * 8 - 3] AS gap, claims[last * 8 - 2] AS shift, claims[last * 8 - 1] AS carried,
                        claims[last * 8] AS strictly,
                        coalesce(ratelimit.sound_v1(claims[last * 8 - 6], s1, s2, coalesce(s3, 0)), false) AS sound
                    FROM unnest(ids, lasts) WITH ORDINALITY AS given (id, last, place)
                    LEFT JOIN LATERAL (
                        SELECT ctid AS spot, kind AS held, cardinality(state) AS length, state AS was,
                            state[1] AS s1, state[2] AS s2, state[3] AS s3
                        FROM ratelimit.meters AS meters WHERE meters.id = given.id OFFSET 0
                    ) AS meter ON true
                    OFFSET 0
                ) AS looked OFFSET 0
            ) AS dated OFFSET 0
        ) AS counted
    ), charged AS MATERIALIZED (
        SELECT id, place, spot, held, was, kind, state, ratelimit.until_v1(
            ratelimit.end_v1(state[1], state[2], kind, gap, shift, carried), asked, here, slack) AS forget_at
        FROM seen WHERE state IS NOT NULL
    ), updated AS (
        UPDATE ratelimit.meters AS meters SET forget_at = charged.forget_at, state = charged.state
        FROM charged
        WHERE meters.ctid = charged.spot AND meters.kind = charged.held AND meters.state = charged.was
            AND NOT EXISTS (SELECT FROM charged WHERE held IS NULL)
        RETURNING charged.place
    ), placed AS (
        INSERT INTO ratelimit.meters AS meters (id, forget_at, kind, state, was)
        SELECT id, forget_at, kind, state, was FROM charged
        WHERE EXISTS (SELECT FROM charged WHERE held IS NULL) ORDER BY id
        ON CONFLICT (id) DO UPDATE SET forget_at = excluded.forget_at, state = excluded.state
            WHERE meters.kind = excluded.kind AND meters.state = excluded.was
        RETURNING id, was
    )
    SELECT array_agg(shape), array_agg(s1), array_agg(s2), array_agg(s3),
        (SELECT array_agg(place) FROM updated), (SELECT array_agg(id) FROM placed),
        (SELECT bool_or(placed.was IS NOT NULL) FROM placed)
        INTO shapes, a, b, c, done, put, gone
        FROM seen;
    IF gone THEN
        RAISE EXCEPTION 'a meter has gone between the look and the charge' USING ERRCODE = 'RL001';
    END IF;
END $$;

-- The same for one claim, which is faster with several small statements than with one that can do everything. If somebody
-- has changed the meter meanwhile it is locked and decided again.
--
-- Answers: whether it was written, the clock, the shape, a, b and c.
CREATE OR REPLACE FUNCTION ratelimit.take_one_v1(
    name bytea, asked bigint, sort bigint, cost bigint, quota bigint, gap bigint, shift bigint, carried bigint,
    strictly bigint, by_server boolean, slack bigint
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE @settings@ AS $$
DECLARE
    done boolean := false;
    here timestamptz;
    clock bigint;
    held smallint;
    length int;
    before bigint[];
    s1 bigint;
    s2 bigint;
    s3 bigint;
    @step variables@
    until timestamptz;
BEGIN
    FOR attempt IN 1 .. 2 LOOP
        SELECT kind, cardinality(state), state, state[1], state[2], state[3] INTO held, length, before, s1, s2, s3
            FROM ratelimit.meters WHERE id = name;
        here := clock_timestamp();
        IF by_server THEN
            clock := (extract(epoch FROM here) * 1000000)::bigint * 1000;
            asked := clock;
        END IF;
@step@
        EXIT WHEN becomes IS NULL;
        until := ratelimit.until_v1(
            ratelimit.end_v1(becomes[1], becomes[2], sort, gap, shift, carried), asked, here, slack);
        IF held IS NULL THEN
            INSERT INTO ratelimit.meters (id, forget_at, kind, state) VALUES (name, until, sort, becomes)
                ON CONFLICT (id) DO NOTHING;
        ELSE
            UPDATE ratelimit.meters SET forget_at = until, state = becomes
                WHERE id = name AND kind = held AND state = before;
        END IF;
        done := FOUND;
        EXIT WHEN done OR attempt = 2;
        PERFORM FROM ratelimit.meters WHERE id = name FOR UPDATE;
    END LOOP;
    RETURN ARRAY[done::int, clock, ratelimit.shape_v1(held, length, sort, carried), s1, s2, s3];
END $$;
