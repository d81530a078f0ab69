// The Java driver against a CQL server: `java -cp lib/* Checks.java HOST PORT WAY`.
//
// Prints one line per check; exits with 1 if one failed, with 2 if the checks could not be run to
// their end. It runs from its source, so nothing is built.

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.ProtocolVersion;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.BatchableStatement;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.servererrors.AlreadyExistsException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import java.io.FileInputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CompletionStage;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

final class Checks {
    private static final int ROWS = 1000;
    private static final int IN_FLIGHT = 64;
    private static int failures = 0;

    public static void main(String[] words) throws Exception {
        InetSocketAddress node = new InetSocketAddress(words[0], Integer.parseInt(words[1]));
        if (words[2].equals("secure")) {
            part("secure", () -> secure(node));
            System.exit(failures == 0 ? 0 : 1);
        }
        try (CqlSession session = connect(node, null, "lz4")) {
            String version = session.getContext().getProtocolVersion().toString();
            check("the driver speaks version 5", version, "V5");
            schema(session);
            part("scalars", () -> scalars(session));
            part("many", () -> many(session));
            part("batches", () -> batches(session));
            part("time to live", () -> timeToLive(session));
            part("errors", () -> errors(session));
            part("version 4", () -> versionFour(node));
            part("restart", () -> restart(session));
            session.execute("DROP KEYSPACE tare_java");
            boolean gone = session.getMetadata().getKeyspace("tare_java").isEmpty();
            check("the driver sees the drop", gone, true);
        } catch (DriverException error) {
            check("the whole run", error.toString(), "no error");
        }
        System.exit(failures == 0 ? 0 : 1);
    }

    /** With TLS and a password; a wrong one is refused. */
    private static void secure(InetSocketAddress node) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (var file = new FileInputStream(System.getenv("TARE_CA"))) {
            trusted.setCertificateEntry("tare", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(null, trust.getTrustManagers(), null);
        String user = System.getenv("TARE_USER");
        for (String password : List.of(System.getenv("TARE_PASSWORD"), "wrong")) {
            boolean isRight = !password.equals("wrong");
            try (CqlSession session = CqlSession.builder()
                    .addContactPoint(node)
                    .withLocalDatacenter("datacenter1")
                    .withSslContext(tls)
                    .withAuthCredentials(user, password)
                    .build()) {
                Row row = session.execute("SELECT key FROM system.local").one();
                check("over TLS with a password", row.getString(0), isRight ? "local" : "refused");
            } catch (AllNodesFailedException error) {
                check("a wrong password is refused: " + error.getMessage(), isRight, false);
            }
        }
    }

    private static CqlSession connect(InetSocketAddress node, String version, String compression) {
        var config = DriverConfigLoader.programmaticBuilder()
                .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30))
                .withDuration(DefaultDriverOption.RECONNECTION_BASE_DELAY, Duration.ofMillis(200))
                .withDuration(DefaultDriverOption.RECONNECTION_MAX_DELAY, Duration.ofMillis(400))
                .withString(DefaultDriverOption.PROTOCOL_COMPRESSION, compression)
                .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "QUORUM");
        if (version != null) {
            config = config.withString(DefaultDriverOption.PROTOCOL_VERSION, version);
        }
        return CqlSession.builder()
                .addContactPoint(node)
                .withLocalDatacenter("datacenter1")
                .withConfigLoader(config.build())
                .build();
    }

    private static void schema(CqlSession session) {
        session.execute("DROP KEYSPACE IF EXISTS tare_java");
        String create = "CREATE KEYSPACE tare_java WITH replication = "
                + "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        session.execute(create);
        raises("a keyspace that exists", AlreadyExistsException.class, () -> session.execute(create));
        StringBuilder columns = new StringBuilder();
        for (String type : SCALARS.keySet()) {
            columns.append(", c_").append(type).append(' ').append(type);
        }
        session.execute("CREATE TABLE tare_java.scalars (id int PRIMARY KEY" + columns + ")");
        session.execute("CREATE TABLE tare_java.series (k int, t int, v text, PRIMARY KEY (k, t)) "
                + "WITH CLUSTERING ORDER BY (t DESC) AND comment = 'tried'");
        session.execute("ALTER TABLE tare_java.series ADD more int");
        check("the schema is agreed on", session.checkSchemaAgreement(), true);
        TableMetadata table =
                session.getMetadata().getKeyspace("tare_java").flatMap(k -> k.getTable("series")).orElseThrow();
        check("the driver sees the order", table.getClusteringColumns().values().toString(), "[DESC]");
        check("the driver sees added columns", table.getColumn("more").isPresent(), true);
        check("the driver can describe the table", table.describe(true).contains("tried"), true);
        var token = session.getMetadata().getTokenMap().isPresent();
        check("the token map is there", token, true);
    }

    /** Every scalar type: its name, its class, and values that must come back as they went. */
    private static final Map<String, List<Object>> SCALARS = scalarValues();

    private static Map<String, List<Object>> scalarValues() {
        Map<String, List<Object>> values = new LinkedHashMap<>();
        try {
            values.put("ascii", List.of("plain", ""));
            values.put("bigint", List.of(Long.MIN_VALUE, Long.MAX_VALUE));
            values.put("blob", List.of(ByteBuffer.wrap(new byte[] {0, -1, 127}), ByteBuffer.allocate(0)));
            values.put("boolean", List.of(true, false));
            values.put("date", List.of(LocalDate.of(1969, 7, 20), LocalDate.of(9999, 12, 31)));
            values.put("decimal", List.of(new BigDecimal("-123456789012345678901234567890.123456789"), new BigDecimal("0E+3")));
            values.put("double", List.of(-1.5, Double.MIN_VALUE));
            values.put("duration", List.of(CqlDuration.newInstance(-1, -2, -3), CqlDuration.newInstance(14, 31, 1L << 62)));
            values.put("float", List.of(0.25f, Float.POSITIVE_INFINITY));
            values.put("inet", List.of(InetAddress.getByName("127.0.0.1"), InetAddress.getByName("2001:db8::1")));
            values.put("int", List.of(Integer.MIN_VALUE, Integer.MAX_VALUE));
            values.put("smallint", List.of(Short.MIN_VALUE, Short.MAX_VALUE));
            values.put("text", List.of("ünï'cødé 🐘", "x".repeat(70000)));
            values.put("time", List.of(LocalTime.MAX, LocalTime.MIDNIGHT));
            values.put("timestamp", List.of(Instant.parse("2000-02-29T23:59:58.123Z"), Instant.parse("1960-01-01T00:00:00Z")));
            values.put("timeuuid", List.of(UUID.fromString("50554d6e-29bb-11e5-b345-feff819cdc9f"), UUID.fromString("00000000-0000-1000-8080-808080808080")));
            values.put("tinyint", List.of(Byte.MIN_VALUE, Byte.MAX_VALUE));
            values.put("uuid", List.of(UUID.fromString("123e4567-e89b-12d3-a456-426614174000"), new UUID(0, 0)));
            values.put("varchar", List.of("same as text", ""));
            values.put("varint", List.of(BigInteger.ONE.shiftLeft(200).negate(), BigInteger.ZERO));
        } catch (java.net.UnknownHostException error) {
            throw new IllegalStateException(error);
        }
        return values;
    }

    private static void scalars(CqlSession session) {
        String names = String.join(", ", SCALARS.keySet().stream().map(type -> "c_" + type).toList());
        String markers = ", ?".repeat(SCALARS.size());
        PreparedStatement insert = session.prepare(
                "INSERT INTO tare_java.scalars (id, " + names + ") VALUES (?" + markers + ")");
        PreparedStatement select = session.prepare("SELECT * FROM tare_java.scalars WHERE id = ?");
        for (int row = 0; row < 2; row++) {
            List<Object> values = new ArrayList<>(List.of(row));
            for (List<Object> both : SCALARS.values()) {
                values.add(both.get(row));
            }
            session.execute(insert.bind(values.toArray()));
            Row got = session.execute(select.bind(row)).one();
            for (Map.Entry<String, List<Object>> type : SCALARS.entrySet()) {
                Object value = got.getObject("c_" + type.getKey());
                check(type.getKey() + " comes back, value " + row, value, type.getValue().get(row));
            }
        }
        session.execute(insert.boundStatementBuilder().setInt("id", 0).setString("c_text", "new").build());
        Row got = session.execute(select.bind(0)).one();
        check("an unset value leaves the old one", got.getString("c_text") + got.getInt("c_int"), "new" + Integer.MIN_VALUE);
    }

    private static void many(CqlSession session) {
        PreparedStatement insert = session.prepare("INSERT INTO tare_java.series (k, t, v) VALUES (?, ?, ?)");
        List<BoundStatement> writes = new ArrayList<>();
        for (int n = 0; n < ROWS; n++) {
            writes.add(insert.bind(n % 2, n, "value " + n));
        }
        for (int from = 0; from < ROWS; from += IN_FLIGHT) {
            List<CompletionStage<?>> flying = new ArrayList<>();
            for (BoundStatement write : writes.subList(from, Math.min(ROWS, from + IN_FLIGHT))) {
                flying.add(session.executeAsync(write));
            }
            flying.forEach(one -> one.toCompletableFuture().join());
        }
        SimpleStatement newest = SimpleStatement.newInstance("SELECT t FROM tare_java.series WHERE k = 1");
        List<Integer> paged = new ArrayList<>();
        session.execute(newest.setPageSize(7)).forEach(row -> paged.add(row.getInt(0)));
        List<Integer> expected = new ArrayList<>();
        for (int t = ROWS - 1; t > 0; t -= 2) {
            expected.add(t);
        }
        check("a partition in pages", paged, expected);
        ResultSet first = session.execute(newest.setPageSize(10));
        ByteBuffer state = first.getExecutionInfo().getPagingState();
        Row next = session.execute(newest.setPageSize(10).setPagingState(state)).one();
        check("a paging state can be taken elsewhere", next.getInt(0), ROWS - 21);
        SimpleStatement scan = SimpleStatement.newInstance("SELECT t FROM tare_java.series").setPageSize(64);
        int rows = 0;
        for (Row ignored : session.execute(scan)) {
            rows++;
        }
        check("a scan in pages", rows, ROWS);
    }

    private static void batches(CqlSession session) {
        PreparedStatement insert = session.prepare("INSERT INTO tare_java.series (k, t, v) VALUES (?, ?, ?)");
        for (DefaultBatchType type : List.of(DefaultBatchType.LOGGED, DefaultBatchType.UNLOGGED)) {
            List<BatchableStatement<?>> statements = new ArrayList<>();
            for (int t = 0; t < 5; t++) {
                statements.add(insert.bind(-1, t, type.toString()));
            }
            statements.add(SimpleStatement.newInstance("DELETE FROM tare_java.series WHERE k = ? AND t = ?", -1, 9));
            session.execute(BatchStatement.newInstance(type, statements.toArray(new BatchableStatement<?>[0])));
            List<Row> rows = session.execute("SELECT v FROM tare_java.series WHERE k = -1").all();
            check("a batch, " + type, rows.size() + rows.get(4).getString(0), 5 + type.toString());
        }
        SimpleStatement old = SimpleStatement.newInstance("INSERT INTO tare_java.series (k, t) VALUES (-2, 1)");
        session.execute(old.setQueryTimestamp(7));
        session.execute(SimpleStatement.newInstance("UPDATE tare_java.series SET v = 'x' WHERE k = -2 AND t = 1").setQueryTimestamp(8));
        Row row = session.execute("SELECT writetime(v) FROM tare_java.series WHERE k = -2").one();
        check("a timestamp of the client's", row.getLong(0), 8L);
    }

    private static void timeToLive(CqlSession session) throws InterruptedException {
        session.execute("INSERT INTO tare_java.series (k, t, v) VALUES (-3, 1, 'x') USING TTL 1");
        session.execute("INSERT INTO tare_java.series (k, t, v) VALUES (-3, 2, 'x') USING TTL 1000");
        Row row = session.execute("SELECT ttl(v) FROM tare_java.series WHERE k = -3 AND t = 2").one();
        check("ttl() says what is left", row.getInt(0) > 990 && row.getInt(0) <= 1000, true);
        long deadline = System.nanoTime() + 20_000_000_000L;
        int left;
        do {
            Thread.sleep(100);
            left = session.execute("SELECT t FROM tare_java.series WHERE k = -3").all().size();
        } while (left > 1 && System.nanoTime() < deadline);
        check("a row is gone after its time", left, 1);
    }

    private static void errors(CqlSession session) {
        raises("a syntax error", SyntaxError.class, () -> session.execute("SELEC 1"));
        raises("an unknown table", InvalidQueryException.class, () -> session.execute("SELECT * FROM tare_java.no"));
        raises("an index is refused", InvalidQueryException.class,
                () -> session.execute("CREATE INDEX ON tare_java.series (v)"));
    }

    private static void versionFour(InetSocketAddress node) {
        for (String compression : List.of("lz4", "none")) {
            try (CqlSession session = connect(node, "V4", compression)) {
                Row row = session.execute("SELECT c_text FROM tare_java.scalars WHERE id = 1").one();
                check("version 4, compression " + compression, row.getString(0).length(), 70000);
                check("and it is version 4", session.getContext().getProtocolVersion(), ProtocolVersion.V4);
            }
        }
    }

    /** What was acknowledged is there after a crash, and the driver goes on by itself. */
    private static void restart(CqlSession session) throws Exception {
        PreparedStatement insert = session.prepare("INSERT INTO tare_java.series (k, t, v) VALUES (?, ?, ?)");
        PreparedStatement select = session.prepare("SELECT v FROM tare_java.series WHERE k = ? AND t = ?");
        for (int t = 0; t < 100; t++) {
            session.execute(insert.bind(100, t, "before"));
        }
        System.out.println("restart");
        System.out.flush();
        System.in.read();
        long deadline = System.nanoTime() + 30_000_000_000L;
        Row row = null;
        while (row == null) {
            try {
                row = session.execute(select.bind(100, 99)).one();
                break;
            } catch (AllNodesFailedException | com.datastax.oss.driver.api.core.connection.ClosedConnectionException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
        check("a statement prepared before kill -9 runs after it", row == null ? null : row.getString(0), "before");
        int rows = session.execute("SELECT t FROM tare_java.series WHERE k = 100").all().size();
        check("all acknowledged writes are there after kill -9", rows, 100);
        session.execute(insert.bind(100, 100, "after"));
        check("writes go on after kill -9", session.execute(select.bind(100, 100)).one().getString(0), "after");
    }

    private interface Part {
        void run() throws Exception;
    }

    /** A part of the checks; its end by an error is a failed check, not the end of the run. */
    private static void part(String name, Part part) {
        try {
            part.run();
        } catch (Exception error) {
            check(name, error.toString(), "no error");
        }
    }

    private static void raises(String name, Class<? extends Exception> expected, Part part) {
        try {
            part.run();
            check(name, "no error", expected.getSimpleName());
        } catch (Exception error) {
            check(name, error.getClass().getSimpleName(), expected.getSimpleName());
        }
    }

    private static void check(String name, Object got, Object expected) {
        if (Objects.equals(got, expected)) {
            System.out.println("ok       " + name);
        } else {
            failures++;
            System.out.println("FAILED   " + name + ": expected " + expected + ", got " + got);
        }
        System.out.flush();
    }
}
