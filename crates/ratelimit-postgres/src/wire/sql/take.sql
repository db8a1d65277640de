-- The fast path: charges of one meter each, for windows of up to one carried segment and for buckets.
--
-- Claims are grouped by meter, and the claims of a meter are decided one after another. Each claim is eight numbers: the
-- caller's time (-1 for the server's), and those that meter.sql describes, from the kind on.
--
-- Most charges fit. They are one UPDATE, whose WHERE selects states that the charge certainly fits. It may select too few
-- states, but never one that the charge does not fit. The other rows are read, decided and written. So a refusal writes and
-- locks nothing.

-- What is stored for a claim of this kind: 0 nothing, 1 a state of its kind, 2 anything else.
CREATE OR REPLACE FUNCTION ratelimit.shape_v1(held smallint, length int, kind bigint, carried bigint)
RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN held IS NULL THEN 0
        WHEN held = kind AND length = CASE kind WHEN 1 THEN 3 ELSE carried + 2 END THEN 1
        ELSE 2
    END
$$;

-- Whether these numbers can be a state of this kind. Others must not be calculated with: the result might overflow.
CREATE OR REPLACE FUNCTION ratelimit.sound_v1(kind bigint, s1 bigint, s2 bigint, s3 bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT s1 BETWEEN 0 AND 4611686018427387903 AND s2 >= 0 AND CASE kind
        WHEN 1 THEN s3 BETWEEN 1 AND 316224000000000000
        ELSE s2 <= 999999999999999 AND s3 BETWEEN 0 AND 999999999999999
    END
$$;

-- The instant from which a state that begins with these numbers decides as if the meter had never been charged.
CREATE OR REPLACE FUNCTION ratelimit.end_v1(
    s1 bigint, s2 bigint, kind bigint, gap bigint, shift bigint, carried bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE kind WHEN 1 THEN s2 ELSE ((s1 + shift) / gap + carried + 1) * gap - shift END
$$;

-- The state of a meter after the claims `first` to `last`, without those that do not fit. NULL if none fits, or if the stored
-- state is not one for the fast path.
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
        IF sort = 1 AND s3 <> gap AND s2 > greatest(asked, s1) THEN
            RETURN NULL; -- it might fit, and then the later claims would be decided on another state
        END IF;
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

-- Sets until the end of the transaction what the store sets on its own connections, and how `put` is written in a reply in text
-- form. A procedure that commits cannot have settings of its own.
CREATE OR REPLACE FUNCTION ratelimit.settle_v1() RETURNS void LANGUAGE sql AS $$
    SELECT @settle@, set_config('bytea_output', 'hex', true)
$$;

-- Charges claims on the meters `ids`, which are in ascending order and without repetition, in that order.
--
-- lasts   the number of the last claim on each meter
-- certain for each meter eight numbers, and a share: which states its charge certainly fits. Its kind, the number of numbers
--         in the state, the earliest and the latest instant of the newest charge (no state if the first is later), the instant
--         of this charge, what it adds, the most that may be stored before it, and for how many microseconds the meter is kept.
--         The share of a bucket is the interval, which must be that of the state. What a window carries counts by its share,
--         rounded up.
--
-- The reply, with a number for each meter in all but the first and the last three:
-- clock   the time, if it is the server's
-- taken   the indices of the meters that the UPDATE charged; x, y and z are the numbers of their states after it
-- places  the indices of the others; shapes what was stored, see shape_v1; a, b and c the numbers of that state
-- done    the indices of those of them that were charged, if all of them were stored before
-- put     if not, their names in ascending order
-- trouble why there are neither `taken` nor `places` for some: SQLSTATE and message. The others stay charged.
--
-- If a row should have been written and was not, another transaction has changed it. Its claims are then decided on the general
-- path.
--
-- In each transaction rows are locked in ascending order; otherwise two calls might wait for each other. So the charges of the
-- UPDATE are committed before the others are read. This also applies if it charged none, because a row that it has waited for is
-- locked even if it is no longer selected. Of the others, rows that exist are updated by their `ctid`, which is faster than by
-- name. If one has to be inserted, all go through one INSERT, because inserting after updating would not be in ascending order.
-- A meter with one claim (in a call of many meters, nearly all) is decided by the code of step.sql in place: calling a function
-- would be a sixth of the call.
CREATE OR REPLACE PROCEDURE ratelimit.take_v1(
    ids bytea[], lasts int[], claims bigint[], certain bigint[], shares float8[], by_server boolean, slack bigint,
    INOUT clock bigint, INOUT taken int[], INOUT x bigint[], INOUT y bigint[], INOUT z bigint[],
    INOUT places int[], INOUT shapes int[], INOUT a bigint[], INOUT b bigint[], INOUT c bigint[],
    INOUT done int[], INOUT put bytea[], INOUT trouble text
) LANGUAGE plpgsql AS $$
DECLARE
    here CONSTANT timestamptz := clock_timestamp();
    gone boolean;
BEGIN
    IF current_setting('enable_seqscan') = 'on' THEN
        PERFORM ratelimit.settle_v1();
    END IF;
    IF by_server THEN
        clock := (extract(epoch FROM here) * 1000000)::bigint * 1000;
    ELSE
        WITH charged AS (
            UPDATE ratelimit.meters AS meters
            SET forget_at = here
                    + (CASE sort WHEN 0 THEN 0 ELSE greatest(state[2] - asked, 0) / 1000 END + keep) * interval '1 microsecond',
                state[1] = greatest(state[1], asked),
                state[2] = CASE sort WHEN 0 THEN state[2] ELSE greatest(state[2], asked) END + more
            FROM (
                SELECT given.id, given.place::int, share,
                    certain[place * 8 - 7] AS sort, certain[place * 8 - 6] AS size,
                    certain[place * 8 - 5] AS since, certain[place * 8 - 4] AS until, certain[place * 8 - 3] AS asked,
                    certain[place * 8 - 2] AS more, certain[place * 8 - 1] AS room, certain[place * 8] AS keep
                FROM unnest(ids, shares) WITH ORDINALITY AS given (id, share, place)
                OFFSET 0
            ) AS given
            WHERE meters.id = given.id AND meters.kind = sort AND cardinality(state) = size
                AND state[1] BETWEEN since AND until
                AND CASE WHEN state[2] NOT BETWEEN 0 AND room THEN false
                    WHEN sort = 1 THEN state[3] = share
                    ELSE coalesce(state[3], 0) BETWEEN 0 AND 999999999999999
                        AND coalesce(state[3], 0) * share <= room - state[2] END
            RETURNING place, state[1] AS s1, state[2] AS s2, state[3] AS s3
        )
        SELECT array_agg(place), array_agg(s1), array_agg(s2), array_agg(s3) INTO taken, x, y, z FROM charged;
        IF cardinality(taken) = cardinality(ids) THEN
            RETURN;
        END IF;
        COMMIT;
        IF current_setting('enable_seqscan') = 'on' THEN
            PERFORM ratelimit.settle_v1();
        END IF;
    END IF;
    BEGIN
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
                        WHEN kind = 1 AND sound THEN CASE WHEN s2 <= now THEN 0 WHEN s3 = gap THEN s2 - now END
                        ELSE CASE aged WHEN 0 THEN s2 ELSE 0 END
                    END AS current,
                    CASE aged WHEN 0 THEN coalesce(s3, 0) WHEN 1 THEN carried * s2 ELSE 0 END AS previous
                FROM (
                    SELECT *, ratelimit.shape_v1(held, length, kind, carried) AS shape,
                        CASE WHEN kind = 0 AND sound THEN (now + shift) / gap - (s1 + shift) / gap END AS aged
                    FROM (
                        SELECT given.id, given.place::int, given.last, coalesce(lasts[given.place - 1], 0) + 1 AS first, meter.*,
                            coalesce(clock, claims[last * 8 - 7]) AS asked,
                            greatest(coalesce(clock, claims[last * 8 - 7]), s1) AS now,
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
                        WHERE given.place NOT IN (SELECT unnest(taken))
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
        SELECT array_agg(place), array_agg(shape), array_agg(s1), array_agg(s2), array_agg(s3),
            (SELECT array_agg(place) FROM updated), (SELECT array_agg(id) FROM placed),
            (SELECT bool_or(placed.was IS NOT NULL) FROM placed)
            INTO places, shapes, a, b, c, done, put, gone
            FROM seen;
        IF gone THEN
            RAISE EXCEPTION 'a meter has gone between the look and the charge' USING ERRCODE = 'RL001';
        END IF;
    EXCEPTION WHEN OTHERS OR query_canceled THEN
        IF taken IS NULL THEN
            RAISE;
        END IF;
        -- What this block wrote is rolled back, but not its variables.
        places := NULL;
        done := NULL;
        put := NULL;
        trouble := SQLSTATE || SQLERRM;
    END;
END $$;

-- The same for one claim: several small statements, which are faster than one general statement. If another transaction has
-- changed the meter since it was read, the row is locked and decided again.
--
-- since, until, share and keep are those of `certain`.
--
-- Returns whether it was written, the clock, the shape, a, b and c; or 2 if the first UPDATE charged it, the shape and the
-- numbers of the state after it.
CREATE OR REPLACE FUNCTION ratelimit.take_one_v1(
    name bytea, asked bigint, sort bigint, cost bigint, quota bigint, gap bigint, shift bigint, carried bigint,
    strictly bigint, by_server boolean, slack bigint, since bigint, until bigint, share float8, keep bigint
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    answer bigint[];
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
    forget timestamptz;
BEGIN
    IF by_server THEN
        NULL;
    ELSIF sort = 0 THEN
        UPDATE ratelimit.meters SET forget_at = clock_timestamp() + keep * interval '1 microsecond',
            state[1] = greatest(state[1], asked), state[2] = state[2] + cost
        WHERE id = name AND kind = 0 AND cardinality(state) = carried + 2 AND state[1] BETWEEN since AND until
            AND CASE WHEN state[2] NOT BETWEEN 0 AND quota - cost THEN false
                ELSE coalesce(state[3], 0) BETWEEN 0 AND 999999999999999
                    AND coalesce(state[3], 0) * share <= quota - cost - state[2] END
        RETURNING ARRAY[2, NULL, 1, state[1], state[2], state[3]] INTO answer;
    ELSE
        UPDATE ratelimit.meters SET state[1] = asked, state[2] = greatest(state[2], asked) + carried,
            forget_at = clock_timestamp() + (greatest(state[2] - asked, 0) / 1000 + keep) * interval '1 microsecond'
        WHERE id = name AND kind = 1 AND cardinality(state) = 3 AND state[1] BETWEEN since AND until
            AND state[2] BETWEEN 0 AND asked + shift AND state[3] = gap
        RETURNING ARRAY[2, NULL, 1, state[1], state[2], state[3]] INTO answer;
    END IF;
    IF FOUND THEN
        RETURN answer;
    END IF;
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
        forget := ratelimit.until_v1(
            ratelimit.end_v1(becomes[1], becomes[2], sort, gap, shift, carried), asked, here, slack);
        IF held IS NULL THEN
            INSERT INTO ratelimit.meters (id, forget_at, kind, state) VALUES (name, forget, sort, becomes)
                ON CONFLICT (id) DO NOTHING;
        ELSE
            UPDATE ratelimit.meters SET forget_at = forget, state = becomes
                WHERE id = name AND kind = held AND state = before;
        END IF;
        done := FOUND;
        EXIT WHEN done OR attempt = 2;
        PERFORM FROM ratelimit.meters WHERE id = name FOR UPDATE;
    END LOOP;
    RETURN ARRAY[done::int, clock, ratelimit.shape_v1(held, length, sort, carried), s1, s2, s3];
END $$;

-- The same for connections of a pooler, with its settings in the function.
CREATE OR REPLACE FUNCTION ratelimit.take_one_pooled_v1(
    name bytea, asked bigint, sort bigint, cost bigint, quota bigint, gap bigint, shift bigint, carried bigint,
    strictly bigint, by_server boolean, slack bigint, since bigint, until bigint, share float8, keep bigint
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE @settings@ AS $$
BEGIN
    RETURN ratelimit.take_one_v1(
        name, asked, sort, cost, quota, gap, shift, carried, strictly, by_server, slack, since, until, share, keep);
END $$;
