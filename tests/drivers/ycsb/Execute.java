// Executes CQL statements: `java -cp JARS tare.ycsb.Execute HOST PORT STATEMENT...`.

package tare.ycsb;

import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.Session;

final class Execute {
    public static void main(String[] words) {
        Cluster.Builder node = Cluster.builder().addContactPoint(words[0]);
        try (Cluster cluster =
                        node.withPort(Integer.parseInt(words[1])).withoutJMXReporting().build();
                Session session = cluster.connect()) {
            for (int number = 2; number < words.length; number += 1) {
                session.execute(words[number]);
            }
        }
    }
}
