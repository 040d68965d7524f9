-- What no statement may reach; `targets` may be read, and says where it is.
CREATE SCHEMA private;
CREATE TABLE private.secrets (id integer, secret text);
INSERT INTO private.secrets VALUES (1, 'canary-in-the-coal-mine');

CREATE TABLE public.targets AS SELECT 1 AS n, '{file}'::text AS path, 'private.secrets'::text AS name,
    '{victim}'::integer AS pid, ARRAY['{file}'::text] AS paths,
    'select to_tsvector(''simple'', secret) from private.secrets'::text AS query, 30 AS long;

-- Functions that somebody else wrote: each leaves a lock of its session behind.
CREATE FUNCTION public.spy(integer) RETURNS integer LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RETURN 1; END $$;
CREATE FUNCTION public.spy(text) RETURNS integer LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RETURN 1; END $$;
CREATE FUNCTION public.spy(public.targets) RETURNS integer LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RETURN 1; END $$;
CREATE FUNCTION public.spy(text, text) RETURNS text LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RETURN 'x'; END $$;
CREATE FUNCTION public.spied(text) RETURNS boolean LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RETURN true; END $$;
CREATE FUNCTION public.lower(integer) RETURNS text LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RETURN 'x'; END $$;
CREATE FUNCTION public.leak() RETURNS text LANGUAGE sql
    AS $$ SELECT secret FROM private.secrets $$;
CREATE FUNCTION public.leaks() RETURNS SETOF private.secrets LANGUAGE sql
    AS $$ SELECT * FROM private.secrets $$;
CREATE FUNCTION public."Leak"() RETURNS text LANGUAGE sql
    AS $$ SELECT secret FROM private.secrets $$;
CREATE FUNCTION public."LOWER"(text) RETURNS text LANGUAGE sql
    AS $$ SELECT secret FROM private.secrets $$;
CREATE FUNCTION public.spy_step(integer, integer) RETURNS integer LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RETURN 1; END $$;
CREATE FUNCTION public.spy_ti(text, integer) RETURNS text LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RETURN 'x'; END $$;
CREATE AGGREGATE public.spy_agg(integer) (SFUNC = public.spy_step, STYPE = integer, INITCOND = '0');
CREATE OPERATOR public.+ (LEFTARG = text, RIGHTARG = text, FUNCTION = public.spy);
CREATE OPERATOR public.-> (LEFTARG = text, RIGHTARG = text, FUNCTION = public.spy);
CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = integer, FUNCTION = public.spy_ti);
CREATE OPERATOR public.~ (RIGHTARG = text, FUNCTION = public.spied);
CREATE DOMAIN public.watched AS integer CHECK (public.spy(VALUE) > 0);
CREATE DOMAIN public.watched_text AS text CHECK (public.spied(VALUE));
CREATE PROCEDURE public.act() LANGUAGE sql AS $$ SELECT 1 $$;
CREATE SEQUENCE public.numbers;
