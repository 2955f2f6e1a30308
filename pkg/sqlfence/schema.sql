-- The tables of package sqlfence. A writer needs the rights
--   SELECT, INSERT and UPDATE on fencedlease_control, and
--   SELECT, INSERT and DELETE on fencedlease_operations.
-- Nobody should be able to delete a row of fencedlease_control: it is what refuses older generations.

-- One row for each lease: the newest generation that has written, and how far back operations are remembered.
CREATE TABLE IF NOT EXISTS fencedlease_control (
  lease text PRIMARY KEY,
  -- At most token.MaxPlausibleGeneration, so that no forged generation can shut every real one out.
  generation bigint NOT NULL CHECK (generation BETWEEN 1 AND 1000000000000000),
  term text NOT NULL CHECK (term ~ '^[a-z0-9]{8}$'),
  taken_at timestamptz NOT NULL,
  -- How many operations were recorded, ever.
  position bigint NOT NULL DEFAULT 0,
  -- The newest operation that is forgotten. Zero and null if none is.
  forgotten_position bigint NOT NULL DEFAULT 0,
  forgotten_generation bigint,
  forgotten_at timestamptz
) WITH (fillfactor = 50);

-- The newest operations of each lease.
CREATE TABLE IF NOT EXISTS fencedlease_operations (
  lease text NOT NULL,
  operation text NOT NULL CHECK (octet_length(operation) BETWEEN 1 AND 128),
  position bigint NOT NULL,
  generation bigint NOT NULL,
  term text NOT NULL,
  applied_at timestamptz NOT NULL,
  result bytea CHECK (octet_length(result) <= 65536),
  PRIMARY KEY (lease, operation),
  UNIQUE (lease, position)
);
