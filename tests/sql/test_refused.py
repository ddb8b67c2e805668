"""What the language does not have is refused by name, and the caret is under the place.

In these texts ‸ stands before the place that the error must point at.
"""

import pytest
from sqlglot import exp

from promising.errors import BadClause, BadSyntax, Unsupported
from promising.query.sql import nodes, parse, parse_many
from promising.query.sql.check import ALLOWED, check
from promising.query.sql.words import OTHER_STATEMENTS

UNSUPPORTED = [
    # Joins and sources.
    ("SELECT a FROM s ‸LEFT JOIN t ON s.k = t.k", "LEFT JOIN"),
    ("SELECT a FROM s ‸LEFT OUTER JOIN t ON s.k = t.k", "LEFT OUTER JOIN"),
    ("SELECT a FROM s AS x ‸RIGHT JOIN t ON s.k = t.k", "RIGHT JOIN"),
    ("SELECT a FROM s ‸FULL OUTER JOIN t ON s.k = t.k", "FULL OUTER JOIN"),
    ("SELECT a FROM s x ‸FULL JOIN t ON s.k = t.k", "FULL JOIN"),
    ("SELECT a FROM s ‸CROSS JOIN t", "CROSS JOIN"),
    ("SELECT a FROM s ‸NATURAL JOIN t", "NATURAL JOIN"),
    ("SELECT a FROM s ‸NATURAL LEFT JOIN t", "NATURAL LEFT JOIN"),
    ("SELECT a FROM s ‸SEMI JOIN t ON s.k = t.k", "SEMI JOIN"),
    ("SELECT a FROM s ‸ANTI JOIN t ON s.k = t.k", "ANTI JOIN"),
    ("SELECT a FROM s ‸ASOF JOIN t ON s.k = t.k", "ASOF JOIN"),
    ("SELECT a FROM s ‸POSITIONAL JOIN t", "POSITIONAL JOIN"),
    ("SELECT a FROM s ‸STRAIGHT_JOIN t", "STRAIGHT_JOIN"),
    ("SELECT a FROM s, t ‸LEFT JOIN u ON s.k = u.k", "LEFT JOIN"),
    ("SELECT a FROM s JOIN t ‸USING (k)", "USING"),
    ("SELECT a FROM s JOIN t AS x ‸USING (k)", "USING"),
    ("SELECT a FROM s, t, ‸u", "more than two streams"),
    ("SELECT a FROM s JOIN t ON s.k = t.k JOIN ‸u ON s.k = u.k", "more than two streams"),
    ("SELECT a FROM ‸(SELECT a FROM s)", "subquery"),
    ("SELECT a FROM ‸(SELECT a FROM s) AS x", "subquery"),
    ("SELECT a FROM s, ‸(SELECT a FROM t)", "subquery"),
    ("SELECT a FROM ‸(VALUES (1))", "subquery"),
    ("SELECT a FROM ‸(s JOIN t ON s.k = t.k)", "( ) in FROM"),
    ("SELECT a FROM ‸VALUES (1, 2)", "VALUES in FROM"),
    ("SELECT a FROM s, ‸LATERAL (SELECT 1)", "LATERAL in FROM"),
    ("SELECT a FROM s ‸LATERAL VIEW explode(x)", "LATERAL"),
    ("SELECT a FROM ‸UNNEST (b)", "UNNEST in FROM"),
    ("SELECT a FROM ‸read_csv('x.csv')", "function in FROM"),
    ("SELECT a FROM ‸'x.csv'", "file in FROM"),
    ("SELECT a FROM ‸db.s", "several parts"),
    ("SELECT a FROM s AS x‸(a, b)", "list of columns after an alias"),
    ("SELECT a FROM s ‸TABLESAMPLE (10)", "TABLESAMPLE"),
    ("SELECT a FROM s AS x ‸TABLESAMPLE (10)", "TABLESAMPLE"),
    ("SELECT a FROM s ‸SAMPLE 10", "SAMPLE"),
    ("SELECT a FROM s WHERE a > 1 ‸SAMPLE 10", "SAMPLE"),
    ("SELECT a FROM s ‸PIVOT (sum(a) FOR b IN (1))", "PIVOT"),
    ("SELECT a FROM s ‸UNPIVOT (a FOR b IN (c))", "UNPIVOT"),
    ("SELECT a FROM s ‸MATCH_RECOGNIZE (PATTERN (A))", "MATCH_RECOGNIZE"),
    ("SELECT a FROM s ‸FOR SYSTEM_TIME AS OF '2020-01-01'", "FOR"),
    ("‸SELECT 1", "without FROM"),
    ("‸SELECT 1 LIMIT 5", "without FROM"),
    ("‸SELECT a WHERE b", "without FROM"),
    # Queries inside queries, and around them.
    ("‸WITH x AS (SELECT 1) SELECT a FROM x", "common table expression"),
    ("EXPLAIN ‸WITH x AS (SELECT 1) SELECT a FROM x", "common table expression"),
    ("CREATE CONTINUOUS QUERY q AS ‸WITH x AS (SELECT 1) SELECT a FROM x", "common table expression"),
    ("(‸WITH x AS (SELECT 1) SELECT a FROM x)", "common table expression"),
    ("SELECT a FROM s UNION ‸WITH x AS (SELECT 1) SELECT a FROM x", "common table expression"),
    ("SELECT (‸SELECT a FROM s) FROM s", "subquery"),
    ("SELECT a FROM s WHERE a IN (‸SELECT b FROM t)", "subquery"),
    ("SELECT a FROM s WHERE a = (‸SELECT b FROM t)", "subquery"),
    ("SELECT a FROM s WHERE EXISTS (‸WITH x AS (SELECT 1) SELECT b FROM t)", "common table expression"),
    ("SELECT a FROM s WHERE EXISTS (SELECT b FROM t ‸UNION SELECT b FROM u)", "UNION inside of EXISTS"),
    ("SELECT a FROM s WHERE EXISTS (‸SELECT 1)", "without FROM"),
    ("SELECT a FROM s WHERE a = ‸ANY (SELECT b FROM t)", "ANY"),
    ("SELECT a FROM s WHERE a > ‸SOME (SELECT b FROM t)", "SOME"),
    ("SELECT abs(‸SELECT b FROM t) FROM s", "subquery"),
    ("SELECT a FROM s WHERE a = ‸SELECT b FROM t", "subquery"),
    ("SELECT a FROM s ‸MINUS SELECT a FROM t", "MINUS"),
    ("SELECT a FROM s WHERE a > 1 ‸MINUS SELECT a FROM t", "MINUS"),
    ("‸SELECT 1 UNION SELECT 2", "without FROM"),
    ("SELECT a FROM s UNION ‸SELECT 2", "without FROM"),
    ("SELECT a FROM s ‸UNION BY NAME SELECT a FROM t", "UNION BY NAME"),
    ("SELECT a FROM s ‸UNION ALL BY NAME SELECT a FROM t", "UNION BY NAME"),
    ("SELECT a FROM s ‸INTERSECT CORRESPONDING SELECT a FROM t", "CORRESPONDING"),
    # The select list.
    ("SELECT ‸DISTINCT ON (a) b FROM s", "SELECT DISTINCT ON"),
    ("SELECT ‸ALL a FROM s", "SELECT ALL"),
    ("SELECT ‸TOP 5 a FROM s", "TOP"),
    ("SELECT * ‸EXCEPT (a) FROM s", "* EXCEPT"),
    ("SELECT * ‸EXCLUDE (a) FROM s", "* EXCLUDE"),
    ("SELECT * ‸REPLACE (a + 1 AS a) FROM s", "* REPLACE"),
    ("SELECT * ‸RENAME (a AS b) FROM s", "* RENAME"),
    ("SELECT s.* ‸EXCLUDE (a) FROM s", "* EXCLUDE"),
    ("SELECT a ‸INTO t FROM s", "INTO"),
    ("SELECT a FROM s ‸INTO t", "INTO"),
    ("SELECT ‸/*+ BROADCAST(s) */ a FROM s", "hint"),
    ("SELECT a FROM s ‸/*+ x */ WHERE b", "hint"),
    ("SELECT a ‸/*+ x */ FROM s", "hint"),
    ("‸/*+ x */ SELECT a FROM s", "hint"),
    # Grouping, ordering, limits.
    ("SELECT a FROM s GROUP BY ‸ALL", "GROUP BY ALL"),
    ("SELECT a FROM s GROUP BY ‸DISTINCT a", "GROUP BY DISTINCT"),
    ("SELECT a FROM s GROUP BY ‸ROLLUP (a, b)", "ROLLUP"),
    ("SELECT a FROM s GROUP BY b, ‸CUBE (a, b)", "CUBE"),
    ("SELECT a FROM s GROUP BY ‸GROUPING SETS ((a), (b))", "GROUPING SETS"),
    ("SELECT a FROM s GROUP BY a ‸WITH ROLLUP", "WITH ROLLUP"),
    ("SELECT a FROM s GROUP BY ‸(a, b)", "row of several values"),
    ("SELECT a FROM s ORDER BY ‸ALL", "ORDER BY ALL"),
    ("SELECT a FROM s ORDER BY a ‸COLLATE x", "COLLATE"),
    ("SELECT a FROM s ORDER BY a ‸USING >", "USING"),
    ("SELECT a FROM s LIMIT 5 ‸OFFSET 2", "OFFSET"),
    ("SELECT a FROM s ‸OFFSET 2", "OFFSET"),
    ("SELECT a FROM s ORDER BY a ‸FETCH FIRST 5 ROWS ONLY", "FETCH"),
    ("SELECT a FROM s LIMIT ‸ALL", "LIMIT ALL"),
    ("SELECT a FROM s LIMIT ‸(1 + 1)", "LIMIT of an expression"),
    ("SELECT a FROM s LIMIT 10 ‸PERCENT", "percentage"),
    ("SELECT a FROM s LIMIT 10 ‸%", "percentage"),
    ("SELECT a FROM s LIMIT 2‸, 5", "offset"),
    ("SELECT a FROM s LIMIT 2 BY ‸a + 1", "LIMIT n BY takes columns; name the expression"),
    ("SELECT a FROM s LIMIT 2 BY ‸1", "LIMIT n BY takes columns"),
    ("SELECT a FROM s WHERE b ‸QUALIFY c > 1", "QUALIFY"),
    ("SELECT a FROM s ‸WINDOW w AS (PARTITION BY b)", "named WINDOW"),
    ("SELECT a FROM s WHERE b ‸FOR UPDATE", "FOR"),
    ("SELECT a FROM s ‸LOCK IN SHARE MODE", "LOCK"),
    # Functions.
    ("SELECT sum(a) ‸OVER (PARTITION BY b) FROM s", "OVER"),
    ("SELECT sum(a) ‸OVER w FROM s", "OVER"),
    ("SELECT count(*) ‸OVER () FROM s", "OVER"),
    ("SELECT sum(a) ‸FILTER (WHERE b) FROM s", "FILTER"),
    ("SELECT percentile_cont(0.5) ‸WITHIN GROUP (ORDER BY a) FROM s", "WITHIN GROUP"),
    ("SELECT first(a) ‸IGNORE NULLS FROM s", "IGNORE NULLS"),
    ("SELECT first(a) ‸RESPECT NULLS FROM s", "RESPECT NULLS"),
    ("SELECT sum(‸DISTINCT a) FROM s", "DISTINCT in sum()"),
    ("SELECT foo(‸DISTINCT a) FROM s", "DISTINCT in foo()"),
    ("SELECT sum(‸ALL a) FROM s", "ALL in sum()"),
    ("SELECT count(‸ALL a) FROM s", "ALL in count()"),
    ("SELECT count(‸DISTINCT a, b) FROM s", "several expressions"),
    ("SELECT count(‸a, b) FROM s", "several expressions"),
    ("SELECT count(‸DISTINCT *) FROM s", "count(DISTINCT *)"),
    ("SELECT count(‸s.*) FROM s", "all columns"),
    ("SELECT ‸sum(*) FROM s", "sum(*)"),
    ("SELECT string_agg(a, ',' ‸ORDER BY b) FROM s", "ORDER inside"),
    ("SELECT trim(a ‸FROM b) FROM s", "FROM inside"),
    ("SELECT substring(a ‸FROM 1 FOR 2) FROM s", "FROM inside"),
    ("SELECT ‸main.foo(a) FROM s", "function of 'main'"),
    ("SELECT ‸\"foo\"(a) FROM s", "name in quotes"),
    ("SELECT foo(a ‸:= 1) FROM s", "named argument"),
    ("SELECT foo(a ‸=> 1) FROM s", "named argument"),
    ("SELECT list_transform(a, x ‸-> x + 1) FROM s", "lambdas"),
    ("SELECT a FROM s WHERE 1 + ‸VALUES (1)", "VALUES"),
    ("SELECT ‸TRY_CAST(a AS INT) FROM s", "TRY_CAST"),
    ("SELECT CAST(a AS VARCHAR ‸FORMAT 'x') FROM s", "FORMAT"),
    # Operators and literals.
    ("SELECT a ‸^ b FROM s", "^"),
    ("SELECT a ‸** b FROM s", "**"),
    ("SELECT a ‸// b FROM s", "//"),
    ("SELECT a ‸& b FROM s", "&"),
    ("SELECT a ‸| b FROM s", "|"),
    ("SELECT a ‸<< b FROM s", "<<"),
    ("SELECT a ‸>> b FROM s", ">>"),
    ("SELECT a ‸~ 'x' FROM s", "~"),
    ("SELECT a ‸!~ 'x' FROM s", "!~"),
    ("SELECT ‸~a FROM s", "~"),
    ("SELECT ‸!a FROM s", "!"),
    ("SELECT a ‸<=> b FROM s", "<=>"),
    ("SELECT a ‸DIV b FROM s", "DIV"),
    ("SELECT a ‸XOR b FROM s", "XOR"),
    ("SELECT a ‸-> 'x' FROM s", "->"),
    ("SELECT a ‸->> 'x' FROM s", "->>"),
    ("SELECT a‸:b FROM s", "JSON"),
    ("SELECT a‸[1] FROM s", "array"),
    ("SELECT ‸[1, 2] FROM s", "array"),
    ("SELECT ARRAY‸[1, 2] FROM s", "array"),
    ("SELECT ‸{'a': 1} FROM s", "struct"),
    ("SELECT ‸(a, b) FROM s", "row of several values"),
    ("SELECT a FROM s WHERE ‸(a, b) IN ((1, 2))", "row of several values"),
    ("SELECT ‸? FROM s", "parameter"),
    ("SELECT a FROM s WHERE a = ‸?", "parameter"),
    ("SELECT ‸:x FROM s", "parameter"),
    ("SELECT ‸@x FROM s", "parameter"),
    ("SELECT ‸$1 FROM s", "parameter"),
    ("SELECT a FROM s WHERE a ‸IS DISTINCT FROM b", "IS DISTINCT FROM"),
    ("SELECT a FROM s WHERE a ‸IS NOT DISTINCT FROM b", "IS DISTINCT FROM"),
    ("SELECT a FROM s WHERE a ‸IS UNKNOWN", "IS UNKNOWN"),
    ("SELECT a FROM s WHERE a ‸ISNULL", "ISNULL"),
    ("SELECT a FROM s WHERE a ‸NOTNULL", "NOTNULL"),
    ("SELECT a FROM s WHERE a LIKE 'x' ‸ESCAPE '!'", "ESCAPE"),
    ("SELECT a FROM s WHERE a NOT ILIKE 'x' ‸ESCAPE '!'", "ESCAPE"),
    ("SELECT a FROM s WHERE a ‸LIKE ANY ('x')", "LIKE ANY"),
    ("SELECT a FROM s WHERE a ‸SIMILAR TO 'x'", "SIMILAR TO"),
    ("SELECT a FROM s WHERE a ‸REGEXP 'x'", "REGEXP"),
    ("SELECT a FROM s WHERE a ‸RLIKE 'x'", "RLIKE"),
    ("SELECT a FROM s WHERE a ‸GLOB 'x'", "GLOB"),
    ("SELECT a FROM s WHERE a ‸COLLATE nocase = 'x'", "COLLATE"),
    ("SELECT a FROM s WHERE a ‸BETWEEN SYMMETRIC 1 AND 2", "SYMMETRIC"),
    ("SELECT a FROM s WHERE a ‸IN b", "IN without a list"),
    ("SELECT ts ‸AT TIME ZONE 'UTC' FROM s", "AT TIME ZONE"),
    ("SELECT ‸DATE '2020-01-01' FROM s", "DATE"),
    ("SELECT ‸N'x' FROM s", "begins with N"),
    ("SELECT ‸e'x' FROM s", "begins with e"),
    ("SELECT ‸a.b.c FROM s", "more than two parts"),
    ("SELECT ‸INTERVAL (a) DAY FROM s", "INTERVAL of an expression"),
    ("SELECT INTERVAL '1' ‸MONTH FROM s", "MONTH"),
    ("SELECT INTERVAL ‸'1 year' FROM s", "YEAR"),
    ("SELECT ‸INTERVAL '1' HOUR TO MINUTE FROM s", "from one unit to another"),
    # Types.
    ("SELECT CAST(a AS ‸DATE) FROM s", "DATE"),
    ("SELECT CAST(a AS ‸DECIMAL(10, 2)) FROM s", "DECIMAL"),
    ("SELECT CAST(a AS VARCHAR‸(10)) FROM s", "size of the type VARCHAR"),
    ("SELECT CAST(a AS ‸TIMESTAMP WITH TIME ZONE) FROM s", "WITH TIME ZONE"),
    ("SELECT CAST(a AS ‸INT[]) FROM s", "array"),
    ("SELECT a::‸uuid FROM s", "uuid"),
    ("CREATE STREAM s (ts TIMESTAMP, a ‸BLOB) TIMESTAMP BY ts", "BLOB"),
    ("CREATE STREAM s (ts ‸TIMESTAMPTZ) TIMESTAMP BY ts", "TIMESTAMPTZ"),
    ("CREATE STREAM s (ts TIMESTAMP, a VARCHAR‸(10)) TIMESTAMP BY ts", "size of the type VARCHAR"),
    ("CREATE STREAM s (ts TIMESTAMP, a INT ‸NOT NULL) TIMESTAMP BY ts", "NOT after the type"),
    ("CREATE STREAM s (ts TIMESTAMP ‸PRIMARY KEY) TIMESTAMP BY ts", "PRIMARY after the type"),
    # Estimates.
    ("SELECT ‸SUMMARY.Estimate.Count(a) FROM s", "outside of PREFERENCE"),
    ("SELECT a FROM s WHERE 1 < ‸summary.estimate.lower(a)", "outside of PREFERENCE"),
    ("SELECT a FROM s ORDER BY ‸SUMMARY.Estimate.Upper(a) WITH PREFERENCE a", "outside of PREFERENCE"),
    ("SELECT a FROM s WITH PREFERENCE ‸SUMMARY.Estimate.Variance(a)", "SUMMARY.Estimate.Variance"),
    ("SELECT a FROM s WITH PREFERENCE b * ‸SUMMARY.Confidence.Count(a)", "more than two parts"),
    # Spans.
    ("SELECT a FROM s WINDOW 1 ‸MONTH", "MONTH"),
    ("SELECT a FROM s WINDOW INTERVAL '1' ‸YEAR", "YEAR"),
    ("SELECT a FROM s BUDGET 1 ‸NANOSECONDS", "NANOSECONDS"),
    # Other statements.
    ("CREATE TABLE t ‸AS SELECT a FROM s", "CREATE TABLE ... AS"),
    ("CREATE TABLE t ‸LIKE s", "CREATE TABLE ... LIKE"),
    ("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a‸, b))", "several columns"),
    ("CREATE TABLE t (a INT ‸NOT NULL, PRIMARY KEY (a))", "NOT after the type"),
    ("CREATE TABLE t (a INT PRIMARY KEY ‸NOT NULL)", "NOT after the type"),
    ("CREATE TABLE t (a INT ‸DEFAULT 5, PRIMARY KEY (a))", "DEFAULT after the type"),
    ("CREATE TABLE t (a INT, ‸UNIQUE (a), PRIMARY KEY (a))", "UNIQUE in CREATE TABLE"),
    ("CREATE TABLE t (a INT, ‸FOREIGN KEY (a) REFERENCES u (a), PRIMARY KEY (a))", "FOREIGN in CREATE TABLE"),
    ("CREATE TABLE t (a ‸DECIMAL, PRIMARY KEY (a))", "DECIMAL"),
    ("INSERT INTO t ‸SELECT a FROM s", "INSERT of a query"),
    ("INSERT INTO t (a) ‸SELECT a FROM s", "INSERT of a query"),
    ("UPSERT INTO t ‸(SELECT a FROM s)", "UPSERT of a query"),
    ("INSERT INTO t ‸DEFAULT VALUES", "DEFAULT VALUES"),
    ("INSERT INTO t VALUES (‸DEFAULT, 1)", "DEFAULT"),
    ("INSERT ‸OR REPLACE INTO t VALUES (1)", "UPSERT"),
    ("INSERT INTO t VALUES (1) ‸ON CONFLICT DO NOTHING", "UPSERT"),
    ("INSERT INTO t VALUES (1) ‸RETURNING a", "RETURNING"),
    ("INSERT INTO t VALUES (‸SELECT 1)", "subquery"),
    ("UPDATE t SET a = 1‸", "UPDATE without WHERE"),
    ("UPDATE t SET a = 1 ‸FROM s WHERE k = 1", "UPDATE ... FROM"),
    ("UPDATE t SET a = 1 WHERE k = 1 ‸AND b = 2", "more than the primary key"),
    ("DELETE FROM t‸", "DELETE without WHERE"),
    ("DELETE FROM t ‸USING s WHERE k = 1", "DELETE ... USING"),
    ("DELETE FROM t WHERE k = 1 ‸OR k = 2", "more than the primary key"),
    ("DELETE FROM t WHERE k IN (‸SELECT k FROM s)", "subquery"),
    ("DELETE FROM t WHERE k = 1 ‸RETURNING k", "RETURNING"),
    ("ALTER STREAM s SET ‸BUDGET 1 SECOND", "ALTER STREAM ... BUDGET"),
    ("EXPLAIN ‸ALTER QUERY q DROP BUDGET", "EXPLAIN of ALTER QUERY"),
    ("‸ALTER TABLE t ADD COLUMN a INT", "ALTER TABLE"),
    ("ALTER QUERY q ‸RENAME TO r", "ALTER QUERY ... RENAME"),
    ("‸CREATE OR REPLACE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts", "CREATE OR REPLACE"),
    ("‸CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
    ("‸CREATE TEMPORARY STREAM s (ts TIMESTAMP) TIMESTAMP BY ts", "CREATE TEMPORARY"),
    ("ALTER SUMMARY s ‸RENAME TO t", "ALTER SUMMARY ... RENAME"),
    ("EXPLAIN ‸ALTER SUMMARY s ADD MEASURES (MOMENTS(x))", "EXPLAIN of ALTER SUMMARY"),
    ("CREATE SUMMARY s ON t (a‸, b) WITH GRANULARITY 1 AND COLLAPSE(4, 5)", "several columns"),
    ("CREATE CONTINUOUS QUERY q AS ‸SHOW STREAMS", "continuous query of SHOW"),
    ("EXPLAIN ANALYZE ‸INSERT INTO s VALUES (1)", "EXPLAIN of INSERT"),
    ("EXPLAIN ‸CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts", "EXPLAIN of CREATE"),
    ("EXPLAIN ANALYZE ‸CREATE CONTINUOUS QUERY q AS SELECT a FROM s", "EXPLAIN ANALYZE of a continuous query"),
    ("CREATE CONTINUOUS QUERY q AS ‸DELETE FROM t WHERE k = 1", "continuous query of DELETE"),
    ("EXPLAIN ‸(FORMAT json) SELECT a FROM s", "options in parentheses"),
    ("‸DROP VIEW t", "DROP VIEW"),
    ("DROP STREAM a‸, b", "several at once"),
    ("DROP STREAM a ‸RESTRICT", "RESTRICT"),
    ("‸SHOW DATABASES", "SHOW DATABASES"),
    ("‸DESCRIBE SELECT a FROM s", "DESCRIBE of a query"),
    *((f"‸{word} x", word) for word in sorted(OTHER_STATEMENTS)),
    ("‸truncate table s", "TRUNCATE"),
]  # fmt: skip

BAD_SYNTAX = [
    ("‸", "no statement"),
    ("‸  \n-- nothing\n;", "no statement"),
    ("‸foo", "a statement, found foo"),
    ("‸1", "a statement, found 1"),
    ("‸)", "a statement"),
    ("SHOW STREAMS; ‸SHOW STREAMS", "second statement"),
    ("SHOW‸", "found the end"),
    ("SHOW ‸'x'", "STREAMS, SUMMARIES, TABLES or QUERIES"),
    ("SHOW STREAMS ‸x", "end of the statement"),
    ("DESCRIBE‸", "the name of"),
    ("DESCRIBE ‸'x'", "the name of"),
    ("DESCRIBE ‸where", "reserved"),
    ("DROP STREAM‸", "the name of a stream"),
    ("DROP ‸5", "STREAM, SUMMARY, TABLE or QUERY"),
    ("SELECT a FROM s UNION‸", "SELECT, found the end"),
    ("SELECT a FROM s UNION ALL ‸x", "SELECT, found x"),
    ("(SELECT a FROM s‸", "expected ), found the end"),
    ("(SELECT a FROM s)‸)", "end of the statement"),
    ("(‸a)", "SELECT, found a"),
    ("SELECT a FROM s WHERE EXISTS (‸b)", "SELECT, found b"),
    ("SELECT a FROM s WHERE EXISTS (SELECT b FROM t‸", "expected )"),
    ("SELECT DISTINCT ‸FROM s", "an expression, found FROM"),
    ("CREATE TABLE t (a INT‸)", "PRIMARY KEY (column)"),
    ("CREATE TABLE t (PRIMARY KEY (a)‸)", "a column"),
    ("CREATE TABLE t ‸VALUES", "( and the columns"),
    ("CREATE TABLE t (a INT, PRIMARY KEY ‸a)", "( and a column"),
    ("CREATE TABLE t (a INT PRIMARY KEY) NON ‸x", "RETROACTIVE after NON"),
    ("CREATE TABLE t (a INT PRIMARY KEY) ‸x", "end of the statement"),
    ("INSERT ‸t VALUES (1)", "INTO and a stream or table"),
    ("INSERT INTO t (‸1) VALUES (1)", "the name of a column"),
    ("INSERT INTO t (a ‸b) VALUES (1)", ", or )"),
    ("INSERT INTO t VALUES ‸1", "( and the values of a row"),
    ("INSERT INTO t VALUES (‸)", "a value"),
    ("INSERT INTO t VALUES (1, ‸b)", "a constant is wanted"),
    ("INSERT INTO t VALUES (1 + ‸count(*))", "a constant is wanted"),
    ("UPDATE t ‸a = 1", "SET and a column"),
    ("UPDATE t SET a = ‸b WHERE k = 1", "a constant is wanted"),
    ("UPDATE t SET a ‸1 WHERE k = 1", "= and a value"),
    ("UPDATE t SET a = 1 WHERE k ‸> 1", "= after the primary key"),
    ("UPDATE t SET a = 1 WHERE k ‸IN (1)", "= after the primary key"),
    ("DELETE ‸t WHERE k = 1", "FROM and a table"),
    ("DELETE FROM t WHERE k ‸< 1", "= or IN"),
    ("DELETE FROM t WHERE ‸1 = k", "the primary key"),
    ("ALTER ‸5", "STREAM, SUMMARY or QUERY"),
    ("ALTER STREAM s ‸5", "KEEP, WATERMARK or MAX JUMP"),
    ("ALTER STREAM s KEEP‸", "a length of time after KEEP"),
    ("ALTER STREAM s WATERMARK ‸5", "an instant after WATERMARK"),
    ("ALTER STREAM s MAX ‸5", "JUMP"),
    ("ALTER QUERY q ‸5", "SET BUDGET or DROP BUDGET"),
    ("ALTER QUERY q SET ‸WINDOW 5", "BUDGET"),
    ("ALTER QUERY q SET BUDGET‸", "a length of time after BUDGET"),
    ("SELECT‸", "an expression, found the end"),
    ("SELECT ‸FROM s", "an expression, found FROM"),
    ("SELECT a, ‸FROM s", "an expression, found FROM"),
    ("SELECT a b ‸c FROM s", ", or FROM"),
    ("SELECT a FROM‸", "the name of a stream, found the end"),
    ("SELECT a FROM ‸where", "reserved"),
    ("SELECT ‸order FROM s", "an expression"),
    ("SELECT a AS ‸limit FROM s", 'write it in quotes: "limit"'),
    ("SELECT a FROM s x ‸y", "end of the statement"),
    ("SELECT a FROM s JOIN t‸", "ON and a condition"),
    ("SELECT a FROM s JOIN t ‸WHERE a", "ON and a condition"),
    ("SELECT a FROM s INNER ‸t", "JOIN"),
    ("SELECT a FROM s,‸", "the name of a stream"),
    ("SELECT a FROM s WHERE‸", "an expression"),
    ("SELECT a FROM s WHERE a =‸", "an expression"),
    ("SELECT a FROM s WHERE a = ‸= b", "an expression"),
    ("SELECT a FROM s WHERE a < b ‸< c", "use parentheses, or AND"),
    ("SELECT a FROM s WHERE a = b ‸<> c", "use parentheses, or AND"),
    ("SELECT a FROM s WHERE a LIKE b ‸LIKE c", "use parentheses, or AND"),
    ("SELECT a FROM s WHERE a IN (1) ‸IN (2)", "use parentheses, or AND"),
    ("SELECT a FROM s WHERE a = ‸NOT b", "NOT needs parentheses"),
    ("SELECT a FROM s WHERE a ‸NOT b", "end of the statement"),
    ("SELECT a FROM s WHERE a IS ‸5", "NULL, TRUE or FALSE"),
    ("SELECT a FROM s WHERE a IN (‸)", "a value"),
    ("SELECT a FROM s WHERE a IN (1‸", ", or )"),
    ("SELECT a FROM s WHERE a BETWEEN 1 ‸OR 2", "AND and the upper end"),
    ("SELECT (a ‸FROM s", ")"),
    ("SELECT (‸) FROM s", "an expression"),
    ("SELECT a‸) FROM s", ", or FROM"),
    ("SELECT abs(a‸", ", or )"),
    ("SELECT ‸abs() FROM s", "abs takes 1 argument, not 0"),
    ("SELECT ‸abs(a, b) FROM s", "abs takes 1 argument, not 2"),
    ("SELECT ‸round(a, 1, 2) FROM s", "round takes 1 or 2 arguments, not 3"),
    ("SELECT ‸quantile(a) FROM s", "quantile takes 2 arguments, not 1"),
    ("SELECT ‸coalesce() FROM s", "coalesce takes at least 1 argument, not 0"),
    ("SELECT ‸substring(a) FROM s", "substring takes 2 or 3 arguments, not 1"),
    ("SELECT count(‸) FROM s", "count takes * or an expression"),
    ("SELECT date_trunc(‸a, ts) FROM s", "a unit in quotes"),
    ("SELECT EXTRACT(‸5 FROM ts) FROM s", "a unit of time"),
    ("SELECT EXTRACT(‸'a b' FROM ts) FROM s", "a unit of time"),
    ("SELECT EXTRACT(HOUR‸, ts) FROM s", "FROM in EXTRACT"),
    ("SELECT CAST(a ‸INT) FROM s", "AS and a type"),
    ("SELECT CAST(a AS ‸5) FROM s", "a type"),
    ("SELECT CASE ‸END FROM s", "an expression"),
    ("SELECT CASE a ‸END FROM s", "WHEN"),
    ("SELECT CASE WHEN a ‸END FROM s", "THEN"),
    ("SELECT CASE WHEN a THEN b ‸FROM s", "END of CASE"),
    ("SELECT a + ‸* FROM s", "* stands only in the select list"),
    ("SELECT * ‸+ 1 FROM s", ", or FROM"),
    ("SELECT abs(s.‸*) FROM s", "* stands only in the select list"),
    ("SELECT * ‸x FROM s", "* has no other name"),
    ("SELECT * ‸AS x FROM s", "* has no other name"),
    ("SELECT + ‸a FROM s", "a number after +"),
    ("SELECT a‸.5 FROM s", ", or FROM"),
    ("SELECT a. ‸, b FROM s", "a name after the dot"),
    ("SELECT 'a' ‸'b' FROM s", ", or FROM"),
    ("SELECT a FROM s WHERE name ‸'x'", "end of the statement"),
    ("SELECT ‸'abc FROM s", "string without an end"),
    ("SELECT ‸'abc'' FROM s", "string without an end"),
    ('SELECT ‸"abc FROM s', "quoted name without an end"),
    ('SELECT ‸"" FROM s', "empty name"),
    ("SELECT a ‸/* FROM s", "comment without an end"),
    ("SELECT a ‸/* /* */ FROM s", "comment without an end"),
    ("SELECT ‸60SECONDS FROM s", "runs into a word: '60SECONDS'"),
    ("SELECT a FROM s WINDOW ‸60s", "runs into a word: '60s'"),
    ("SELECT ‸0x1F FROM s", "runs into a word: '0x1F'"),
    ("SELECT ‸1e FROM s", "runs into a word"),
    ("SELECT ‸`a` FROM s", "no meaning here: '`'"),
    ("SELECT a ‸\x00 FROM s", "U+0000"),
    ("SELECT '‸\ud800' FROM s", "surrogate"),
    ("SELECT ‸" + "9" * 401 + " FROM s", "more than 400 characters"),
    ("SELECT INTERVAL ‸'1:30' FROM s", "a number and a unit"),
    ("SELECT INTERVAL ‸'x' DAY FROM s", "a number and a unit"),
    ("SELECT INTERVAL ‸'' DAY FROM s", "a number and a unit"),
    ("SELECT INTERVAL ‸'1 day 2' FROM s", "a number and a unit"),
    ("SELECT INTERVAL '1' ‸fortnight FROM s", "no unit of time"),
    ("SELECT INTERVAL '1'‸, a FROM s", "a unit of time"),
    ("SELECT a FROM s WINDOW‸", "a length of time after WINDOW"),
    ("SELECT a FROM s WINDOW ‸'60'", "a length of time after WINDOW"),
    ("SELECT a FROM s WINDOW ‸- - 5", "a length of time after WINDOW"),
    ("SELECT a FROM s WINDOW 60 ‸fortnights", "end of the statement"),
    ("SELECT a FROM s BUDGET ‸LIMIT 5", "a length of time after BUDGET"),
    ("SELECT a FROM s FADE ‸0.8", "FACTOR"),
    ("SELECT a FROM s FADE FACTOR ‸x", "a number after FADE FACTOR"),
    ("SELECT a FROM s LIMIT ‸x", "a number after LIMIT"),
    ("SELECT a FROM s LIMIT 2 BY‸", "an expression"),
    ("SELECT a FROM s WITH ‸x", "PREFERENCE or ERROR after WITH"),
    ("SELECT a FROM s ‸PREFERENCE DESC b", "WITH PREFERENCE"),
    ("SELECT a FROM s WHERE c ‸PREFERENCE DESC b", "WITH PREFERENCE"),
    ("SELECT a FROM s WITH PREFERENCE‸", "an expression"),
    ("SELECT a FROM s WITH PREFERENCE DESC‸", "an expression"),
    ("SELECT a FROM s WITH PREFERENCE weighted‸", "an expression"),
    ("SELECT a FROM s WITH PREFERENCE WEIGHTED ‸LIMIT 5", "an expression"),
    ("SELECT a FROM s WITH PREFERENCE SUMMARY.Estimate.Count(‸a + 1)", "takes a column"),
    ("SELECT a FROM s WITH PREFERENCE SUMMARY.Estimate‸.5", "end of the statement"),
    ("SELECT a FROM s WITH PREFERENCE SUMMARY.Estimate.Count‸", "( and a column"),
    ("SELECT a FROM s WITH ERROR ‸x", "a number after ERROR"),
    ("SELECT a FROM s WITH ERROR 0.1 CONFIDENCE‸", "a number after CONFIDENCE"),
    ("SELECT a FROM s GROUP ‸a", "BY"),
    ("SELECT a FROM s ORDER ‸a", "BY"),
    ("SELECT a FROM s ORDER BY a NULLS ‸x", "FIRST or LAST"),
    ("CREATE‸", "STREAM, SUMMARY, TABLE or CONTINUOUS QUERY"),
    ("CREATE CONTINUOUS ‸x", "QUERY"),
    ("CREATE CONTINUOUS QUERY q ‸SELECT a FROM s", "AS and a query"),
    ("CREATE CONTINUOUS QUERY q AS ‸foo", "SELECT, found foo"),
    ("CREATE STREAM s‸", "( and the columns"),
    ("CREATE STREAM s (‸) TIMESTAMP BY ts", "the name of a column"),
    ("CREATE STREAM s (ts‸) TIMESTAMP BY ts", "a type"),
    ("CREATE STREAM s (ts TIMESTAMP‸", ", or )"),
    ("CREATE STREAM s (ts TIMESTAMP)‸", "TIMESTAMP BY"),
    ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP ‸ts", "BY"),
    ("CREATE STREAM s (ts TIMESTAMP) LATENESS 5 SECONDS‸", "TIMESTAMP BY"),
    ("CREATE STREAM s (‸select INT, ts TIMESTAMP) TIMESTAMP BY ts", "reserved"),
    ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts OPTIONS (‸)", "the name of an option"),
    ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts OPTIONS (a ‸5)", "= and a value"),
    ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts OPTIONS (a = ‸)", "a number, a string"),
    ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts OPTIONS (a = 1 ‸b = 2)", ", or )"),
    ("CREATE SUMMARY s ‸t (k)", "ON and a stream"),
    ("CREATE SUMMARY s ON t ‸WITH", "( and a column"),
    ("CREATE SUMMARY s ON t (k)‸", "WITH GRANULARITY"),
    ("CREATE SUMMARY s ON t (k) WITH ‸x", "GRANULARITY"),
    ("CREATE SUMMARY s ON t (k) MEASURES ‸MOMENTS(x) WITH", "NONE or ( and measures"),
    ("CREATE SUMMARY s ON t (k) MEASURES (‸) WITH", "a measure, such as MOMENTS"),
    ("CREATE SUMMARY s ON t (k) MEASURES (‸'x') WITH", "a measure, such as MOMENTS"),
    ('CREATE SUMMARY s ON t (k) MEASURES (‸"MOMENTS"(x)) WITH', "a measure, such as MOMENTS"),
    ("CREATE SUMMARY s ON t (k) MEASURES (MOMENTS‸) WITH", "( and what to measure"),
    ("CREATE SUMMARY s ON t (k) MEASURES (MOMENTS(‸*)) WITH", "a column or a number"),
    ("CREATE SUMMARY s ON t (k) MEASURES (MOMENTS(x, ‸y)) WITH", "a number"),
    ("CREATE SUMMARY s ON t (k) MEASURES (MOMENTS(x ‸+ 1)) WITH", ", or )"),
    ("CREATE SUMMARY s ON t (k) MEASURES (MOMENTS(x) ‸WITH", ", or )"),
    ("CREATE SUMMARY s ON t (k) MEASURES NONE‸", "WITH GRANULARITY"),
    ("ALTER SUMMARY ‸(", "the name of a summary"),
    ("ALTER SUMMARY s‸", "ADD MEASURES or DROP MEASURES"),
    ("ALTER SUMMARY s ADD ‸(MOMENTS(x))", "MEASURES and a list"),
    ("ALTER SUMMARY s ADD MEASURES ‸NONE", "( and measures, such as"),
    ("ALTER SUMMARY s DROP MEASURES (‸)", "a measure, such as"),
    ("CREATE SUMMARY s ON t (k) WITH GRANULARITY 1 AND COLLAPSE(4, 5) ‸MEASURES NONE", "end of the statement"),
    ("CREATE SUMMARY s ON t (k) WITH GRANULARITY ‸x", "a length of time after GRANULARITY"),
    ("CREATE SUMMARY s ON t (k) WITH GRANULARITY 1 SECOND‸", "AND COLLAPSE"),
    ("CREATE SUMMARY s ON t (k) WITH GRANULARITY 1 SECOND AND COLLAPSE(4‸)", ", and the depth"),
    ("CREATE SUMMARY s ON t (k) WITH GRANULARITY 1 SECOND AND COLLAPSE(‸x, 5)", "the rate"),
    ("CREATE SUMMARY s ON t (k) WITH GRANULARITY 1 AND COLLAPSE(4, 5) STRUCTURE‸", "time, grid, adaptive or auto"),
    ("CREATE SUMMARY s ON t (k) WITH GRANULARITY 1 AND COLLAPSE(4, 5) ‸x", "end of the statement"),
    ("SELECT a FROM s WHERE b\n  AND ‸/ 2", "an expression, found /"),
]  # fmt: skip

BAD_CLAUSE = [
    ("(SELECT a FROM s) ‸ORDER BY a", "after a query in parentheses"),
    ("(SELECT a FROM s UNION SELECT a FROM t) ‸WINDOW 5", "after a query in parentheses"),
    ("CREATE TABLE t (a INT PRIMARY KEY, ‸PRIMARY KEY (a))", "PRIMARY KEY is given twice"),
    ("CREATE TABLE t (a INT PRIMARY KEY, b INT ‸PRIMARY KEY)", "PRIMARY KEY is given twice"),
    ("INSERT INTO t (a, b) VALUES (1, 2), ‸(3)", "a row of 1 value, where 2 are due"),
    ("INSERT INTO t VALUES (1, 2), ‸(3, 4, 5)", "a row of 3 values, where 2 are due"),
    ("ALTER QUERY q SET BUDGET ‸0.1 MICROSECONDS", "whole number"),
    ("SELECT a FROM s WINDOW 5 SECONDS ‸WINDOW 6 SECONDS", "WINDOW is given twice"),
    ("SELECT a FROM s BUDGET 5 LIMIT 1 ‸BUDGET 6", "BUDGET is given twice"),
    ("SELECT a FROM s LIMIT 5 ‸LIMIT 6", "LIMIT is given twice"),
    ("SELECT a FROM s LIMIT 5 BY a ‸LIMIT 6 BY b", "LIMIT n BY is given twice"),
    ("SELECT a FROM s LIMIT 5 ‸LIMIT 6 BY b", "LIMIT n BY comes before LIMIT"),
    ("SELECT a FROM s FADE FACTOR 1 ‸FADE FACTOR 1", "FADE FACTOR is given twice"),
    ("SELECT a FROM s WITH PREFERENCE a ‸WITH PREFERENCE b", "PREFERENCE is given twice"),
    ("SELECT a FROM s WITH ERROR 1 ‸WITH ERROR 1", "ERROR is given twice"),
    ("SELECT a FROM s LIMIT 5 ‸WHERE a", "WHERE comes before LIMIT"),
    ("SELECT a FROM s WINDOW 5 SECONDS ‸GROUP BY a", "GROUP BY comes before WINDOW"),
    ("SELECT a FROM s WITH PREFERENCE b ‸ORDER BY a", "ORDER BY comes before PREFERENCE"),
    ("SELECT a FROM s ORDER BY a ‸WHERE b", "WHERE comes before ORDER BY"),
    ("SELECT a FROM s GROUP BY a ‸WHERE b", "WHERE comes before GROUP BY"),
    ("SELECT a FROM s, t ‸FROM u", "FROM is given twice"),
    ("SELECT a FROM s WHERE a ‸WHERE b", "WHERE is given twice"),
    ("SELECT a FROM s WITH PREFERENCE a ‸DESC", "DESC comes before"),
    ("SELECT a FROM s WINDOW ‸0.1 MICROSECONDS", "not a whole number of microseconds"),
    ("SELECT a FROM s BUDGET ‸1e-30", "not a whole number of microseconds"),
    ("SELECT a FROM s WINDOW ‸1e300", "longer than any"),
    ("SELECT a FROM s WINDOW ‸2305843009213693953 us", "longer than any"),
    ("SELECT a FROM s WINDOW INTERVAL ‸'99999999999999999999 days'", "longer than any"),
    ("SELECT a - INTERVAL ‸'0.1' MICROSECOND FROM s", "not a whole number of microseconds"),
    ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts ‸TIMESTAMP BY ts", "TIMESTAMP BY is given twice"),
    ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts LATENESS 1 ‸LATENESS 2", "LATENESS is given twice"),
    ("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts OPTIONS (a = 1) ‸OPTIONS (a = 1)", "OPTIONS is given twice"),
    ("CREATE SUMMARY s ON t (k) WITH GRANULARITY 1 AND COLLAPSE(4, 5) STRUCTURE a ‸STRUCTURE a", "STRUCTURE is given"),
]  # fmt: skip

CASES = [
    *((Unsupported, marked, message) for marked, message in UNSUPPORTED),
    *((BadSyntax, marked, message) for marked, message in BAD_SYNTAX),
    *((BadClause, marked, message) for marked, message in BAD_CLAUSE),
]


@pytest.mark.parametrize(("kind", "marked", "message"), CASES)
def test_refused_by_name_and_place(kind, marked, message):
    place, text = marked.index("‸"), marked.replace("‸", "")
    with pytest.raises((BadSyntax, Unsupported, BadClause)) as caught:
        parse(text)
    error = caught.value
    assert type(error) is kind, error
    assert message in error.problem
    before = text[:place]
    column = place - (before.rfind("\n") + 1)
    assert (error.line, error.column) == (before.count("\n") + 1, column + 1), error
    assert str(error).splitlines()[-1] == "  " + " " * column + "^"


def test_the_caret_is_under_the_place():
    with pytest.raises(Unsupported) as caught:
        parse("SELECT a\nFROM s\n  LEFT JOIN t ON s.k = t.k")
    assert str(caught.value).splitlines() == [
        "LEFT JOIN is not supported",
        "line 3, column 3:",
        "    LEFT JOIN t ON s.k = t.k",
        "    ^",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 65 + "a" + ")" * 65,
        "(" * 50_000,
        "abs(" * 65 + "a" + ")" * 65,
        "NOT " * 1_000 + "a",
        "- " * 1_000 + "1",
        "CASE WHEN " * 1_000,
        "a IN (" * 1_000,
        "CAST(" * 1_000,
        "a + (b * (" * 1_000,
        " + ".join("a" * 1_000),
        " || ".join("a" * 70),
        "a" + "::int" * 1_000,
        "a" + " IS NULL" * 1_000,
        "a = (NOT " * 1_000,
        "SUMMARY.Estimate.Count(" * 1_000,
    ],
)
@pytest.mark.parametrize("where", ["SELECT {} FROM s", "SELECT a FROM s WITH PREFERENCE {}"])
def test_nesting_has_a_limit(text, where):
    with pytest.raises((BadSyntax, Unsupported)) as caught:
        parse(where.format(text)[:100_000])
    assert "nested deeper than 64 levels" in str(caught.value) or "outside of PREFERENCE" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 65 + "SELECT a FROM s" + ")" * 65,
        "(" * 50_000,
        "SELECT a FROM s" + " UNION SELECT a FROM s" * 1_000,
        "SELECT a FROM s UNION (" * 1_000,
        "SELECT a FROM s WHERE EXISTS (" * 1_000,
        "SELECT a FROM s WHERE " + "EXISTS (SELECT a FROM s WHERE " * 40 + "b" + ")" * 40,
    ],
)
def test_nesting_of_queries_has_a_limit(text):
    with pytest.raises(BadSyntax, match="nested deeper than 64 levels"):
        parse(text)


@pytest.mark.parametrize(
    "text", ["(" * 60 + "a" + ")" * 60, "abs(" * 60 + "a" + ")" * 60, "a" + "::int" * 60, "NOT " * 60 + "a"]
)
def test_sixty_levels_are_no_problem(text):
    tree = parse(f"SELECT {text} FROM s")
    assert parse(tree.sql()) == tree


def test_a_caller_who_is_deep_down_gets_a_typed_error():
    def dive(levels):
        return dive(levels - 1) if levels else parse("SELECT " + "(" * 60 + "a" + ")" * 60 + " FROM s")

    caught = 0
    for levels in range(500, 1_000, 20):
        try:
            dive(levels)
        except BadSyntax as error:
            assert "nested too deeply" in str(error)
            caught += 1
        except RecursionError:
            break  # Not even the first call of ours had room.
    assert caught


def test_length_has_a_limit():
    assert parse("SHOW STREAMS" + " " * (100_000 - len("SHOW STREAMS")))
    with pytest.raises(BadSyntax, match="100001 characters"):
        parse("SHOW STREAMS" + " " * (100_001 - len("SHOW STREAMS")))


def test_many_statements_point_into_the_whole_text():
    text = "SHOW STREAMS;\nSELECT a FROM s OFFSET 5"
    with pytest.raises(Unsupported) as caught:
        parse_many(text)
    assert (caught.value.line, caught.value.column) == (2, 17)


@pytest.mark.parametrize("kind", [exp.Subquery, exp.Window, exp.RegexpLike, exp.Lambda, exp.Paren, exp.Bracket])
def test_a_node_that_is_not_of_the_language_is_refused(kind):
    """What slips through the grammar is caught when the tree is done."""
    tree = parse("SELECT a FROM s WHERE b")
    tree.args["where"].set("this", kind(this=tree.args["where"].this.copy()))
    with pytest.raises(Unsupported) as caught:
        check(tree, "SELECT a FROM s WHERE b")
    assert kind.key in caught.value.problem
    assert caught.value.column == 23


def test_only_nodes_of_the_language_are_allowed():
    assert exp.Subquery not in ALLOWED
    assert exp.Select not in ALLOWED
    assert nodes.Select in ALLOWED
