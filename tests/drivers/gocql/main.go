// The gocql driver against a CQL server: `tare-driver-gocql HOST PORT WAY`. Prints one line per
// check; exits with 1 if one failed.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
)

const (
	keyspace = "tare_gocql"
	rows     = 1000
	inFlight = 64
)

var failures = 0

func check(name string, got, expected any) {
	if fmt.Sprint(got) == fmt.Sprint(expected) {
		fmt.Printf("ok       %s\n", name)
		return
	}
	failures++
	fmt.Printf("FAILED   %s: expected %v, got %v\n", name, expected, got)
}

// part runs checks that may end early by an error, which is then a failed check.
func part(name string, run func() error) {
	if err := run(); err != nil {
		check(name, err, "no error")
	}
}

func main() {
	host := os.Args[1]
	port, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Println("usage: tare-driver-gocql HOST PORT WAY")
		os.Exit(2)
	}
	switch os.Args[3] {
	case "secure":
		part("secure", func() error { return secure(host, port) })
	default:
		part("the whole run", func() error { return run(host, port) })
	}
	if failures > 0 {
		os.Exit(1)
	}
}

func connect(host string, port, version int, compressor gocql.Compressor) (*gocql.Session, error) {
	return settings(host, port, version, compressor).CreateSession()
}

func settings(host string, port, version int, compressor gocql.Compressor) *gocql.ClusterConfig {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.ProtoVersion = version
	cluster.Compressor = compressor
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 30 * time.Second
	cluster.Consistency = gocql.Quorum
	cluster.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 100, Interval: 200 * time.Millisecond}
	cluster.ReconnectInterval = 200 * time.Millisecond
	return cluster
}

// secure: with TLS and a password; a wrong one is refused.
func secure(host string, port int) error {
	for _, password := range []string{os.Getenv("TARE_PASSWORD"), "wrong"} {
		cluster := settings(host, port, 0, lz4.LZ4Compressor{})
		cluster.SslOpts = &gocql.SslOptions{CaPath: os.Getenv("TARE_CA"), EnableHostVerification: true}
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: os.Getenv("TARE_USER"), Password: password}
		session, err := cluster.CreateSession()
		if password == "wrong" {
			check("a wrong password is refused", err != nil, true)
			continue
		}
		if err != nil {
			return err
		}
		key := ""
		err = session.Query("SELECT key FROM system.local").Scan(&key)
		session.Close()
		check("over TLS with a password", key, "local")
		if err != nil {
			return err
		}
	}
	return nil
}

func run(host string, port int) error {
	// 0 lets the driver find out the version.
	session, err := connect(host, port, 0, lz4.LZ4Compressor{})
	if err != nil {
		return err
	}
	defer session.Close()
	check("connect", true, true)
	if err := schema(session); err != nil {
		return err
	}
	part("scalars", func() error { return scalars(session) })
	part("many", func() error { return many(session) })
	part("batches", func() error { return batches(session) })
	part("time to live", func() error { return timeToLive(session) })
	part("errors", func() error { return refusals(session) })
	part("versions", func() error { return versions(host, port) })
	part("restart", func() error { return restart(session) })
	return session.Query("DROP KEYSPACE " + keyspace).Exec()
}

func schema(session *gocql.Session) error {
	if err := session.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec(); err != nil {
		return err
	}
	create := "CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
	if err := session.Query(create).Exec(); err != nil {
		return err
	}
	var exists *gocql.RequestErrAlreadyExists
	check("a keyspace that exists", errors.As(session.Query(create).Exec(), &exists), true)
	var columns []string
	for _, scalar := range scalarValues() {
		columns = append(columns, "c_"+scalar.name+" "+scalar.name)
	}
	for _, statement := range []string{
		"CREATE TABLE " + keyspace + ".scalars (id int PRIMARY KEY, " + strings.Join(columns, ", ") + ")",
		"CREATE TABLE " + keyspace + ".series (k int, t int, v text, PRIMARY KEY (k, t)) WITH CLUSTERING ORDER BY (t DESC)",
		"ALTER TABLE " + keyspace + ".series ADD more int",
	} {
		if err := session.Query(statement).Exec(); err != nil {
			return err
		}
	}
	if err := session.AwaitSchemaAgreement(context.Background()); err != nil {
		return err
	}
	// The driver reads the schema again when events tell of changes.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		known, err := session.KeyspaceMetadata(keyspace)
		if err == nil && known.Tables["series"] != nil && len(known.Tables["series"].Columns) == 4 {
			check("the driver reads the schema", known.Tables["series"].ClusteringColumns[0].Name, "t")
			check("the driver sees the tables", len(known.Tables), 2)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the driver has not been told of the schema: %v, %v", known, err)
		}
	}
}

func many(session *gocql.Session) error {
	var flying sync.WaitGroup
	failed := make(chan error, rows)
	slots := make(chan struct{}, inFlight)
	for n := 0; n < rows; n++ {
		flying.Add(1)
		slots <- struct{}{}
		go func(n int) {
			defer func() { <-slots; flying.Done() }()
			insert := session.Query("INSERT INTO "+keyspace+".series (k, t, v) VALUES (?, ?, ?)", n%2, n, fmt.Sprint("value ", n))
			if err := insert.Exec(); err != nil {
				failed <- err
			}
		}(n)
	}
	flying.Wait()
	close(failed)
	check(fmt.Sprint(rows, " writes in flight"), len(failed), 0)
	var got, expected []int
	iter := session.Query("SELECT t FROM " + keyspace + ".series WHERE k = 1").PageSize(7).Iter()
	for t := 0; iter.Scan(&t); {
		got = append(got, t)
	}
	if err := iter.Close(); err != nil {
		return err
	}
	for t := rows - 1; t > 0; t -= 2 {
		expected = append(expected, t)
	}
	check("a partition in pages", got, expected)
	iter = session.Query("SELECT t FROM " + keyspace + ".series").PageSize(64).Iter()
	scanned := 0
	for t := 0; iter.Scan(&t); {
		scanned++
	}
	check("a scan in pages", scanned, rows)
	if err := iter.Close(); err != nil {
		return err
	}
	count := 0
	err := session.Query("SELECT count(*) FROM "+keyspace+".series WHERE k = ? AND t >= ? AND t < ?", 0, 100, 200).Scan(&count)
	check("count of a range", count, 50)
	return err
}

func batches(session *gocql.Session) error {
	for _, kind := range []gocql.BatchType{gocql.LoggedBatch, gocql.UnloggedBatch} {
		key := -1 - int(kind)
		batch := session.Batch(kind)
		for t := 0; t < 5; t++ {
			batch = batch.Query("INSERT INTO "+keyspace+".series (k, t, v) VALUES (?, ?, ?)", key, t, "x")
		}
		batch = batch.Query(fmt.Sprintf("INSERT INTO %s.series (k, t) VALUES (%d, 5)", keyspace, key))
		if err := batch.WithTimestamp(77).Exec(); err != nil {
			return err
		}
		var written int64
		count := session.Query("SELECT count(*) FROM "+keyspace+".series WHERE k = ?", key)
		number := 0
		if err := count.Scan(&number); err != nil {
			return err
		}
		check(fmt.Sprint("a batch of kind ", kind), number, 6)
		time := session.Query("SELECT writetime(v) FROM "+keyspace+".series WHERE k = ? AND t = 3", key)
		if err := time.Scan(&written); err != nil {
			return err
		}
		check("its timestamp", written, 77)
	}
	return nil
}

func timeToLive(session *gocql.Session) error {
	insert := "INSERT INTO " + keyspace + ".series (k, t, v) VALUES (-9, ?, 'x') USING TTL ?"
	for t, seconds := range []int{1, 1000} {
		if err := session.Query(insert, t, seconds).Exec(); err != nil {
			return err
		}
	}
	left := 0
	if err := session.Query("SELECT ttl(v) FROM " + keyspace + ".series WHERE k = -9 AND t = 1").Scan(&left); err != nil {
		return err
	}
	check("ttl() says what is left", left > 990 && left <= 1000, true)
	count := 2
	for deadline := time.Now().Add(20 * time.Second); count > 1 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		if err := session.Query("SELECT count(*) FROM " + keyspace + ".series WHERE k = -9").Scan(&count); err != nil {
			return err
		}
	}
	check("a row is gone after its time", count, 1)
	return nil
}

func refusals(session *gocql.Session) error {
	codes := map[string]int{
		"SELEC 1":                           gocql.ErrCodeSyntax,
		"SELECT * FROM " + keyspace + ".no": gocql.ErrCodeInvalid,
		"CREATE INDEX ON " + keyspace + ".series (v)": gocql.ErrCodeInvalid,
	}
	for statement, code := range codes {
		var refused gocql.RequestError
		err := session.Query(statement).Exec()
		if !errors.As(err, &refused) {
			check(statement, err, "an error of the server's")
			continue
		}
		check("refused: "+statement, refused.Code(), code)
	}
	return nil
}

// versions connects with each version and with and without compression.
func versions(host string, port int) error {
	for _, version := range []int{4, 5} {
		for _, compressor := range []gocql.Compressor{lz4.LZ4Compressor{}, nil} {
			session, err := connect(host, port, version, compressor)
			if err != nil {
				return fmt.Errorf("version %d, %v: %w", version, compressor, err)
			}
			text := ""
			err = session.Query("SELECT c_text FROM " + keyspace + ".scalars WHERE id = 1").Scan(&text)
			session.Close()
			if err != nil {
				return fmt.Errorf("version %d, %v: %w", version, compressor, err)
			}
			check(fmt.Sprintf("version %d, compressor %v", version, compressor), len(text), 70000)
		}
	}
	return nil
}

// restart: what was acknowledged is there after a crash, and the driver goes on by itself.
func restart(session *gocql.Session) error {
	insert := "INSERT INTO " + keyspace + ".series (k, t, v) VALUES (?, ?, ?)"
	query := "SELECT v FROM " + keyspace + ".series WHERE k = ? AND t = ?"
	for t := 0; t < 100; t++ {
		if err := session.Query(insert, 100, t, "before").Exec(); err != nil {
			return err
		}
	}
	fmt.Println("restart")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	value := ""
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := session.Query(query, 100, 99).Scan(&value)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	check("a statement prepared before kill -9 runs after it", value, "before")
	count := 0
	if err := session.Query("SELECT count(*) FROM " + keyspace + ".series WHERE k = 100").Scan(&count); err != nil {
		return err
	}
	check("all acknowledged writes are there after kill -9", count, 100)
	if err := session.Query(insert, 100, 100, "after").Exec(); err != nil {
		return err
	}
	err := session.Query(query, 100, 100).Scan(&value)
	check("writes go on after kill -9", value, "after")
	return err
}
