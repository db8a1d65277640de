-- The table: one row for each meter.
--
-- kind        0 window, 1 bucket, 2 log
-- state       window: the newest instant of a charge, then the units by age, those of its own segment first
--             bucket: the newest instant of a charge, then a debt for each rate whose units have not drained, by rising
--                     interval, at most 16: the theoretical arrival time, the interval, the receipt of the newest unit of
--                     this rate. The first debt includes all units, each other those of its own rate and of slower rates. A
--                     single debt omits a receipt that equals its arrival time, as it nearly always does: three numbers.
--             log:    the instants of the units, oldest first
--             All instants are nanoseconds since 1970.
-- was         Always NULL. take.sql uses it to pass the state that a charge was decided on to a check of the row.
-- forget_at   By this server's clock. Not indexed: it changes with each charge, and an index on it would end the
--             in-page (HOT) updates that keep the table small.
CREATE UNLOGGED TABLE IF NOT EXISTS ratelimit.meters (
    forget_at timestamptz NOT NULL,
    kind smallint NOT NULL,
    id bytea NOT NULL,
    state bigint[] NOT NULL,
    was bigint[],
    CONSTRAINT @prefix@meters_pkey PRIMARY KEY (id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_cost_delay = 0
);

-- Long states are instants: they hardly compress, and trying takes longer than writing them.
-- Changing it stops all calls until all transactions that use the table have ended.
DO $$ BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = 'ratelimit.meters'::regclass AND attname = 'state' AND attstorage = 'e'
    ) THEN
        ALTER TABLE ratelimit.meters ALTER COLUMN state SET STORAGE EXTERNAL;
    END IF;
END $$;
