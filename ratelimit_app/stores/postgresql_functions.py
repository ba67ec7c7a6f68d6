"""The functions that decide about any number of counters in one round trip to PostgreSQL.

A migration creates them, in the schema of the tables. Each statement in them sees what was committed
before it began, which a single statement with the same steps does not.

They are the same as ``logs.py`` and ``base.py``, in SQL: change both. ``TestWithoutFunctions`` holds them
together.
"""

#: What the store calls, and checks for.
SIGNATURE = "ratelimit_app_advance(jsonb)"

#: How many numbers an outcome is: [fits, count, weighed, empty_at, room_at, more_at, entry].
WIDTH = 7

_STEP = """
CREATE TYPE ratelimit_app_step AS (
    key text, window_start bigint, first bigint, expires_at bigint,
    floor bigint, amount bigint, ceiling bigint, most bigint, count_denied boolean,
    weighed_start bigint, weight bigint, scale bigint,
    now bigint, logged_until bigint, is_held boolean
)
"""
_LOOK = """
CREATE FUNCTION ratelimit_app_look(step ratelimit_app_step) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    used bigint := 0;
    beside bigint := 0;
    total bigint;
    empty_at bigint := 0;
    room_at bigint := 0;
    more_at bigint := 0;
    wanted numeric;
BEGIN
    IF step.logged_until IS NULL THEN
        SELECT coalesce(max(c.count) FILTER (WHERE c.window_start = step.window_start), 0),
            coalesce(max(c.count) FILTER (WHERE c.window_start = step.weighed_start), 0)
        INTO used, beside
        FROM ratelimit_app_counter c
        WHERE c.key = step.key AND c.window_start IN (step.window_start, step.weighed_start);
    ELSIF step.is_held THEN
        SELECT sum(c.units), max(c.expires_at), min(c.expires_at) INTO used, empty_at, more_at
        FROM ratelimit_app_loggedcall c WHERE c.key = step.key AND c.expires_at > step.now;
        IF used + step.amount > step.ceiling THEN
            SELECT min(c.expires_at) FILTER (WHERE c.freed >= used + step.amount - step.ceiling),
                min(c.expires_at) FILTER (WHERE c.freed >= used + 1 - step.ceiling)
            INTO room_at, more_at
            FROM (
                SELECT e.expires_at, sum(e.units) OVER (ORDER BY e.expires_at, e.sequence) AS freed
                FROM ratelimit_app_loggedcall e WHERE e.key = step.key AND e.expires_at > step.now
            ) AS c;
        END IF;
    ELSE
        SELECT newest.sequence - oldest.sequence + oldest.units, newest.sequence, newest.expires_at,
            oldest.expires_at
        INTO used, total, empty_at, more_at
        FROM (
            SELECT c.sequence, c.expires_at FROM ratelimit_app_loggedcall c
            WHERE c.key = step.key ORDER BY c.sequence DESC LIMIT 1
        ) AS newest, (
            SELECT c.sequence, c.units, c.expires_at FROM ratelimit_app_loggedcall c
            WHERE c.key = step.key AND c.expires_at > step.now ORDER BY c.expires_at, c.sequence LIMIT 1
        ) AS oldest;
        IF used + step.amount > step.ceiling THEN
            SELECT c.expires_at INTO room_at FROM ratelimit_app_loggedcall c
            WHERE c.key = step.key AND c.sequence >= total + step.amount - step.ceiling
            ORDER BY c.sequence LIMIT 1;
        END IF;
        IF used > step.ceiling THEN  -- more is used than there is: the oldest entry alone makes no room
            SELECT c.expires_at INTO more_at FROM ratelimit_app_loggedcall c
            WHERE c.key = step.key AND c.sequence >= total + 1 - step.ceiling ORDER BY c.sequence LIMIT 1;
        END IF;
    END IF;
    used := coalesce(used, 0);
    wanted := greatest(used, step.floor) + step.amount
        + div(beside::numeric * step.weight + step.scale - 1, step.scale);
    RETURN ARRAY[
        (wanted <= step.ceiling)::int, used, beside,
        coalesce(empty_at, 0), coalesce(room_at, 0), coalesce(more_at, 0), 0
    ];
END
$$
"""
# Moves a counter to at most ``highest``; NULL where it has no room.
_MOVE = """
CREATE FUNCTION ratelimit_app_move(step ratelimit_app_step, highest bigint) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    beside bigint := 0;
    part bigint := 0;
    until bigint;
    bar bigint := highest;
    total bigint;
    newest bigint;
    outcome bigint[];
BEGIN
    IF step.logged_until IS NOT NULL THEN
        bar := 4611686018427387903;  -- the row that heads a log holds the running total
    ELSIF step.weighed_start IS NOT NULL THEN
        SELECT coalesce(max(c.count), 0) INTO beside
        FROM ratelimit_app_counter c WHERE c.key = step.key AND c.window_start = step.weighed_start;
        part := div(beside::numeric * step.weight + step.scale - 1, step.scale);
    END IF;

    INSERT INTO ratelimit_app_counter AS c (key, window_start, count, expires_at)
    SELECT step.key, step.window_start, step.first, step.expires_at WHERE step.first + part <= bar
    ON CONFLICT (key, window_start) DO UPDATE
    SET count = greatest(c.count, step.floor) + step.amount,
        expires_at = greatest(c.expires_at, excluded.expires_at)
    WHERE greatest(c.count, step.floor) + step.amount + part <= bar
    RETURNING c.count INTO total;
    IF total IS NULL THEN
        RETURN NULL;
    ELSIF step.logged_until IS NULL THEN
        RETURN ARRAY[(total + part <= step.ceiling)::int, total, beside, 0, 0, 0, 0];
    END IF;

    IF total = step.amount THEN  -- the head is new: what a former one left has expired
        DELETE FROM ratelimit_app_loggedcall c WHERE c.key = step.key;
    END IF;
    outcome := ratelimit_app_look(step);
    IF outcome[2] + step.amount > highest THEN
        UPDATE ratelimit_app_counter c SET count = c.count - step.amount
        WHERE c.key = step.key AND c.window_start = step.window_start;
        RETURN NULL;
    END IF;
    -- Entries of a log expire in their order, though the clock may have stepped back.
    until := CASE WHEN step.is_held THEN step.logged_until ELSE greatest(step.logged_until, outcome[4]) END;
    INSERT INTO ratelimit_app_loggedcall AS c (key, sequence, units, expires_at)
    VALUES (
        step.key,
        greatest(total, step.amount + (
            SELECT max(e.sequence) FROM ratelimit_app_loggedcall e WHERE e.key = step.key
        )),
        step.amount,
        until
    )
    RETURNING c.sequence INTO newest;
    IF newest > total THEN  -- the head was set back behind its entries
        UPDATE ratelimit_app_counter c SET count = newest
        WHERE c.key = step.key AND c.window_start = step.window_start;
    END IF;
    IF outcome[1] = 1 THEN
        RETURN ARRAY[
            1, outcome[2] + step.amount, 0, greatest(until, outcome[4]), 0,
            least(coalesce(nullif(outcome[6], 0), until), until),
            CASE WHEN step.is_held THEN newest ELSE 0 END
        ];
    END IF;
    RETURN ratelimit_app_look(step);
END
$$
"""
# Moves all of the counters or, where one has no room, none of them but those that count denied calls.
# The steps come in the order in which rows are locked. What is raised is caught, and takes the moves back.
_ADVANCE = """
CREATE FUNCTION ratelimit_app_advance(steps jsonb) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    step ratelimit_app_step;
    outcome bigint[];
    outcomes bigint[] := '{}';
    refusal bigint[];
    refused ratelimit_app_step;
BEGIN
    BEGIN
        FOR step IN SELECT * FROM jsonb_populate_recordset(NULL::ratelimit_app_step, steps) LOOP
            outcome := ratelimit_app_move(step, step.ceiling);
            IF outcome IS NULL THEN
                refused := step;
                refusal := ratelimit_app_look(step);
                refusal[1] := 0;  -- it stays refused, even if there should be room by now
                RAISE SQLSTATE 'RL429';
            END IF;
            outcomes := outcomes || outcome;
        END LOOP;
        RETURN outcomes;
    EXCEPTION WHEN SQLSTATE 'RL429' THEN
        outcomes := '{}';
    END;

    FOR step IN SELECT * FROM jsonb_populate_recordset(NULL::ratelimit_app_step, steps) LOOP
        outcome := CASE WHEN step = refused THEN refusal ELSE ratelimit_app_look(step) END;
        IF outcome[1] = 0 AND step.count_denied THEN
            IF ratelimit_app_move(step, step.most) IS NOT NULL THEN
                outcome := ratelimit_app_look(step);
            END IF;
            outcome[1] := 0;
        END IF;
        outcomes := outcomes || outcome;
    END LOOP;
    RETURN outcomes;
END
$$
"""

CREATE = (_STEP, _LOOK, _MOVE, _ADVANCE)
DROP = (
    "DROP FUNCTION IF EXISTS ratelimit_app_advance(jsonb)",
    "DROP FUNCTION IF EXISTS ratelimit_app_move",
    "DROP FUNCTION IF EXISTS ratelimit_app_look",
    "DROP TYPE IF EXISTS ratelimit_app_step",
)
