#!lua flags=allow-oom
-- Marks an id as spent, until what it belongs to has expired anyway. May be repeated.
--
-- Returns 1, or 0 if it was spent before.
--
-- KEYS[1]  spent:<id>
-- ARGV[1]  when it expires, milliseconds since 1970
return redis.call('SET', KEYS[1], '', 'NX', 'PXAT', ARGV[1]) and 1 or 0
