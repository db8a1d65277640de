-- Deletes the forgotten meters of `blocks` blocks of the table, from block `first` on.
--
-- Returns how many were deleted, and how many blocks the table has. Locked rows are left for the next time.
CREATE OR REPLACE FUNCTION ratelimit.prune_v1(first bigint, blocks bigint)
RETURNS bigint[] LANGUAGE plpgsql VOLATILE @settings@ AS $$
DECLARE
    low CONSTANT tid := format('(%s,0)', first);
    high CONSTANT tid := format('(%s,0)', first + blocks);
    forgotten tid[];
BEGIN
    forgotten := ARRAY(
        SELECT ctid FROM ratelimit.meters
        WHERE ctid >= low AND ctid < high AND forget_at < clock_timestamp()
        FOR UPDATE SKIP LOCKED
    );
    DELETE FROM ratelimit.meters WHERE ctid = ANY (forgotten);
    RETURN ARRAY[
        cardinality(forgotten),
        pg_relation_size('ratelimit.meters'::regclass) / current_setting('block_size')::bigint
    ];
END $$;
