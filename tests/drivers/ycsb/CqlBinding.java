// A binding of YCSB to CQL, by the DataStax driver 3. YCSB loads it by name (`-db tare.ycsb.CqlBinding`).
//
// It reads the properties that YCSB's own Cassandra binding documents: `hosts`, `port`,
// `cassandra.keyspace`, `cassandra.readconsistencylevel`, `cassandra.writeconsistencylevel`. The
// table has the column `y_id` for the key and a column of text for each field; whoever runs YCSB
// creates it.
//
// YCSB makes an object of this class for each of its threads. They share one session, which has one
// connection to a node, as the driver does by default with native protocol 3 and later. Each
// operation is one prepared statement, and waits for its answer.

package tare.ycsb;

import com.datastax.driver.core.BoundStatement;
import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.ConsistencyLevel;
import com.datastax.driver.core.PreparedStatement;
import com.datastax.driver.core.ResultSet;
import com.datastax.driver.core.Row;
import com.datastax.driver.core.Session;
import com.datastax.driver.core.exceptions.DriverException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.Vector;
import java.util.concurrent.ConcurrentHashMap;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

public final class CqlBinding extends DB {
    private static final String KEY = "y_id";

    /** The session of all threads; there is one while `users` is above 0. */
    private static Shared shared;
    private static int users = 0;

    private Shared own;

    /** A cluster, its session, and the statements that it has prepared, by their text. */
    private static final class Shared {
        final Cluster cluster;
        final Session session;
        final ConsistencyLevel reads;
        final ConsistencyLevel writes;
        final Map<String, PreparedStatement> prepared = new ConcurrentHashMap<>();

        Shared(Properties properties) throws DBException {
            String hosts = needed(properties, "hosts");
            int port = Integer.parseInt(properties.getProperty("port", "9042"));
            reads = level(properties, "cassandra.readconsistencylevel");
            writes = level(properties, "cassandra.writeconsistencylevel");
            cluster = Cluster.builder()
                    .addContactPoints(hosts.split(","))
                    .withPort(port)
                    .withoutJMXReporting()
                    .build();
            try {
                session = cluster.connect(needed(properties, "cassandra.keyspace"));
            } catch (DriverException error) {
                cluster.close();
                throw new DBException("cannot connect to " + hosts + " on port " + port, error);
            }
        }

        private static String needed(Properties properties, String name) throws DBException {
            String value = properties.getProperty(name);
            if (value == null) {
                throw new DBException("the property " + name + " is missing");
            }
            return value;
        }

        private static ConsistencyLevel level(Properties properties, String name) {
            return ConsistencyLevel.valueOf(properties.getProperty(name, "ONE"));
        }

        /** Returns a statement with these values, which the first use of its text prepares. */
        BoundStatement bind(String text, ConsistencyLevel level, Object... values) {
            PreparedStatement statement = prepared.computeIfAbsent(text, session::prepare);
            BoundStatement bound = statement.bind(values);
            bound.setConsistencyLevel(level);
            return bound;
        }
    }

    @Override
    public void init() throws DBException {
        synchronized (CqlBinding.class) {
            if (shared == null) {
                shared = new Shared(getProperties());
            }
            users += 1;
            own = shared;
        }
    }

    @Override
    public void cleanup() {
        synchronized (CqlBinding.class) {
            users -= 1;
            if (users == 0) {
                shared.cluster.close();
                shared = null;
            }
        }
    }

    @Override
    public Status read(
            String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        String text = "SELECT " + columns(fields) + " FROM " + table + " WHERE " + KEY + " = ?";
        return attempt(() -> {
            Row row = own.session.execute(own.bind(text, own.reads, key)).one();
            if (row == null) {
                return Status.NOT_FOUND;
            }
            put(row, result);
            return Status.OK;
        });
    }

    /** Reads rows in the order of their tokens, from the key's on: CQL has no order of keys. */
    @Override
    public Status scan(
            String table,
            String startkey,
            int recordcount,
            Set<String> fields,
            Vector<HashMap<String, ByteIterator>> result) {
        String text = "SELECT " + columns(fields) + " FROM " + table + " WHERE token(" + KEY
                + ") >= token(?) LIMIT ?";
        return attempt(() -> {
            ResultSet rows = own.session.execute(own.bind(text, own.reads, startkey, recordcount));
            for (Row row : rows) {
                HashMap<String, ByteIterator> values = new HashMap<>();
                put(row, values);
                result.add(values);
            }
            return Status.OK;
        });
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        Map<String, ByteIterator> sorted = new TreeMap<>(values);
        List<Object> bound = new ArrayList<>();
        bound.add(key);
        sorted.values().forEach(value -> bound.add(value.toString()));
        String marks = String.join(", ", Collections.nCopies(bound.size(), "?"));
        return write("INSERT INTO " + table + " (" + KEY + ", "
                + String.join(", ", sorted.keySet()) + ") VALUES (" + marks + ")", bound);
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        Map<String, ByteIterator> sorted = new TreeMap<>(values);
        List<Object> bound = new ArrayList<>();
        sorted.values().forEach(value -> bound.add(value.toString()));
        bound.add(key);
        return write("UPDATE " + table + " SET " + String.join(" = ?, ", sorted.keySet())
                + " = ? WHERE " + KEY + " = ?", bound);
    }

    @Override
    public Status delete(String table, String key) {
        return write("DELETE FROM " + table + " WHERE " + KEY + " = ?", List.of(key));
    }

    private Status write(String text, List<Object> values) {
        return attempt(() -> {
            own.session.execute(own.bind(text, own.writes, values.toArray()));
            return Status.OK;
        });
    }

    private interface Operation {
        Status run();
    }

    /** Runs an operation; YCSB counts what it returns, and prints nothing of it. */
    private static Status attempt(Operation operation) {
        try {
            return operation.run();
        } catch (DriverException error) {
            System.err.println("CqlBinding: " + error);
            return Status.ERROR;
        }
    }

    private static String columns(Set<String> fields) {
        return fields == null ? "*" : String.join(", ", fields);
    }

    private static void put(Row row, Map<String, ByteIterator> result) {
        row.getColumnDefinitions().forEach(column -> {
            String name = column.getName();
            String value = row.getString(name);
            if (value != null && !name.equals(KEY)) {
                result.put(name, new StringByteIterator(value));
            }
        });
    }
}
