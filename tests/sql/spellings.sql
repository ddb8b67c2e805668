SELECT 1 FROM s
    select 1 from s
SELECT a AS b FROM s
    SELECT a b FROM s
SELECT a AS window, b AS count FROM s
    SELECT a window, b count FROM s
SELECT a.b FROM store1 AS a
    SELECT a.b FROM store1 a
SELECT * FROM a JOIN b ON a.k = b.k
    SELECT * FROM a INNER JOIN b ON a.k = b.k
SELECT a FROM s WHERE a AND b
    SELECT ((a)) FROM s WHERE ((((a)) AND (b)))
SELECT a + b * c FROM s
    SELECT a + (b * c) FROM s
SELECT a + b + c FROM s
    SELECT (a + b) + c FROM s
SELECT a * b / c % d FROM s
    SELECT (a * b) / c % d FROM s
SELECT a * b FROM s
    SELECT a×b FROM s
SELECT 1, -1 FROM s
    SELECT +1, - +1 FROM s
SELECT a FROM s WHERE a <> 1 OR a = 2
    SELECT a FROM s WHERE a != 1 OR a == 2
SELECT a FROM s WHERE a NOT IN (1)
    SELECT a FROM s WHERE NOT a IN (1)
SELECT a FROM s WHERE a NOT LIKE 'x'
    SELECT a FROM s WHERE NOT a LIKE 'x'
SELECT a FROM s WHERE a NOT BETWEEN 1 AND 2
    SELECT a FROM s WHERE NOT a BETWEEN 1 AND 2
SELECT a FROM s WHERE a IS NOT NULL
    SELECT a FROM s WHERE NOT a IS NULL
SELECT a FROM s WHERE a OR b OR c OR d OR e
    SELECT a FROM s WHERE (a OR b) OR (c OR (d OR e))
SELECT a FROM s WHERE a AND b AND c AND d
    SELECT a FROM s WHERE a AND (b AND c) AND d
SELECT a FROM s WHERE a OR (b AND (NOT (c = d)))
    SELECT a FROM s WHERE a OR b AND NOT c = d
SELECT a FROM s WHERE (a + b) > (c || d)
    SELECT a FROM s WHERE a + b > c || d
SELECT a FROM s WHERE (a = b) IS NULL
    SELECT a FROM s WHERE a = b IS NULL
SELECT a FROM s WHERE (a IN (1)) = b
    SELECT a FROM s WHERE a IN (1) = b
SELECT a FROM s WHERE a = (b IN (1))
    SELECT a FROM s WHERE a = b IN (1)
SELECT -(CAST(a AS INT)) FROM s
    SELECT -a::int FROM s
SELECT CAST(CAST(a AS INT) AS TEXT), CAST(a + b AS DOUBLE) FROM s
    SELECT a::int::text, (a + b)::double precision FROM s
SELECT CAST(a AS INT), CAST(a AS BOOLEAN), CAST(a AS TEXT), CAST(a AS FLOAT), CAST(a AS BIGINT) FROM s
    SELECT CAST(a AS INTEGER), CAST(a AS BOOL), CAST(a AS STRING), CAST(a AS REAL), CAST(a AS INT8) FROM s
SELECT TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-01' FROM s
    SELECT CAST('2026-01-01' AS TIMESTAMP WITHOUT TIME ZONE), '2026-01-01'::datetime FROM s
SELECT INTERVAL '5' MINUTE, INTERVAL '5' MINUTE, INTERVAL '5' MINUTE, INTERVAL '5' MINUTE FROM s
    SELECT INTERVAL 5 MINUTES, INTERVAL '5 minutes', interval '5' min, INTERVAL '+5min' FROM s
SELECT INTERVAL '65' MINUTE, INTERVAL '0' WEEK FROM s
    SELECT INTERVAL '1 hour 5 minutes', INTERVAL '1 day -24 hours' FROM s
SELECT ceil(a), power(a, 2), substring(a, 1), avg(a), a % b FROM s
    SELECT CEILING(a), POW(a, 2), SUBSTR(a, 1), MEAN(a), MOD(a, b) FROM s
SELECT count(*), count(DISTINCT a), sum(a), foo(a) FROM s
    SELECT COUNT( * ), Count(Distinct a), SUM(a), FOO(a) FROM s
SELECT date_trunc('hour', ts), EXTRACT(HOUR FROM ts) FROM s
    SELECT DATE_TRUNC('HOUR', ts), extract('hour' from ts) FROM s
SELECT a FROM s ORDER BY a, b, c DESC
    SELECT a FROM s ORDER BY a ASC, b ASC NULLS LAST, c DESC NULLS LAST
SELECT a FROM s WITH PREFERENCE DESC a FADE FACTOR .5 WINDOW 2 MINUTES BUDGET 1 SECONDS WITH ERROR .1 LIMIT 5
    SELECT a FROM s LIMIT 5 BUDGET 1 s WINDOW 2 MIN FADE FACTOR .5 WITH ERROR .1 WITH PREFERENCE a
SELECT a FROM s WITH PREFERENCE DESC SUMMARY.Estimate.Lower(a) * SUMMARY.Estimate.Quantile.Upper(b, .5)
    SELECT a FROM s WITH PREFERENCE summary.estimate.count.lower(a) * summary . estimate . quantile . upper (b, +.5)
SELECT a FROM s FADE HALF LIFE 90 MINUTES
    SELECT a FROM s fade half life 90 min
    SELECT a FROM s FADE HALF LIFE INTERVAL '90' MINUTE
SELECT a FROM s WINDOW 2 MINUTES LIMIT 2 BY a, b LIMIT 5
    SELECT a FROM s limit 2 by a, b LIMIT 5 WINDOW 2 MIN
    SELECT a FROM s LIMIT 2 BY a, b WINDOW 2 MIN LIMIT 5
SELECT a FROM s WINDOW 1 HOURS BUDGET -50 MILLISECONDS
    SELECT a FROM s WINDOW INTERVAL '1' HOUR BUDGET INTERVAL '-50 ms'
SELECT a FROM s WINDOW 5 MINUTES BUDGET 1 SECONDS
    SELECT a FROM s WINDOW INTERVAL 5 MINUTES BUDGET +1 second
SELECT a FROM s WITH PREFERENCE DESC SUMMARY.Estimate.Count(a)
    SELECT a FROM s WITH PREFERENCE summary.ESTIMATE.count(a)
SELECT a FROM s WITH PREFERENCE DESC weighted, b
    SELECT a FROM s WITH PREFERENCE weighted, b
SELECT a FROM s WITH PREFERENCE DESC weighted * 2
    SELECT a FROM s WITH PREFERENCE weighted * 2
SELECT a FROM s WITH PREFERENCE WEIGHTED -a
    SELECT a FROM s WITH PREFERENCE weighted -a
CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts LATENESS 5 SECONDS OPTIONS (x = 1)
    create stream s (a int, ts timestamp) options (x = 1) lateness 5 seconds timestamp by ts
CREATE SUMMARY s ON t (k) WITH GRANULARITY 1 MINUTES AND COLLAPSE(4, 5) STRUCTURE grid OPTIONS (a = b)
    create summary s on t (k) with granularity 1 minute and collapse (4,5) options (a=b) structure GRID
CREATE SUMMARY s ON t (k) MEASURES (MOMENTS("order"), SAMPLE(5)) WITH GRANULARITY 1 MINUTES AND COLLAPSE(4, 5)
    create summary s on t (k) measures ( moments(order) , Sample( +5 ) ) with granularity 1 minute and collapse (4,5)
CREATE SUMMARY s ON t (k) MEASURES NONE WITH GRANULARITY 1 MINUTES AND COLLAPSE(4, 5)
    create summary s on t (k) measures none with granularity 1 minute and collapse (4,5)
ALTER SUMMARY s ADD MEASURES (MOMENTS(price))
    alter summary s add measures ( moments ( price ) )
DESCRIBE store1
    DESC store1
DROP QUERY q
    DROP CONTINUOUS QUERY q
SELECT ſelect FROM s
    SELECT ſelect FROM s
SELECT a FROM s
    (SELECT a FROM s)
    ((select a from s))
EXPLAIN SELECT a FROM s
    EXPLAIN (SELECT a FROM s)
    EXPLAIN ((SELECT a FROM s))
SELECT a FROM s UNION SELECT a FROM t
    (SELECT a FROM s) UNION (SELECT a FROM t)
    ((SELECT a FROM s)) union distinct (((select a from t)))
    (SELECT a FROM s UNION SELECT a FROM t)
SELECT a FROM s UNION SELECT a FROM t INTERSECT SELECT a FROM u
    SELECT a FROM s UNION (SELECT a FROM t INTERSECT DISTINCT SELECT a FROM u)
SELECT a FROM s EXCEPT ALL SELECT a FROM t UNION SELECT a FROM u
    (SELECT a FROM s EXCEPT ALL SELECT a FROM t) UNION SELECT a FROM u
SELECT a FROM s WHERE NOT EXISTS (SELECT b FROM t WHERE t.k = s.k)
    SELECT a FROM s WHERE NOT (exists(select b from t where t.k = s.k))
CREATE CONTINUOUS QUERY q AS SELECT a FROM s UNION SELECT a FROM t
    CREATE CONTINUOUS QUERY q AS (SELECT a FROM s UNION (SELECT a FROM t))
CREATE TABLE t (a INT, b TEXT, PRIMARY KEY (a)) RETROACTIVE
    create table t (a int, b text, primary key (a))
    create table t (a int primary key, b text) retroactive
    create table t (primary key (a), a int, b text)
UPDATE t SET a = 1 WHERE k = 2
    update t set a = (1) where k == (2)
DELETE FROM t WHERE k = 1
    DELETE FROM t WHERE k IN (1)
ALTER QUERY q SET BUDGET 5 MILLISECONDS
    alter continuous query q set budget 5 ms
ALTER STREAM s KEEP 732 DAYS
    ALTER STREAM s KEEP 2 YEARS
    alter stream s set keep 2 y
ALTER STREAM s KEEP 15.5 DAYS
    ALTER STREAM s KEEP 0.5 MONTHS
ALTER STREAM s WATERMARK '2024-05-01'
    ALTER STREAM s SET WATERMARK TIMESTAMP '2024-05-01'
ALTER QUERY q DROP BUDGET
    ALTER CONTINUOUS QUERY q DROP BUDGET
SELECT approx_quantile(a, 0.5) FROM s
    SELECT APPROX_PERCENTILE(a, 0.5) FROM s
    SELECT percentile_approx(a, 0.5) FROM s
