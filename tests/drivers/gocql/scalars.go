package main

import (
	"math"
	"math/big"
	"net"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"gopkg.in/inf.v0"
)

// scalar is a type and two values that must come back as they went.
type scalar struct {
	name   string
	values [2]any
}

func scalarValues() []scalar {
	uuid := func(text string) gocql.UUID {
		parsed, err := gocql.ParseUUID(text)
		if err != nil {
			panic(err)
		}
		return parsed
	}
	decimal, _ := new(inf.Dec).SetString("-123456789012345678901234567890.123456789")
	huge := new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 200))
	return []scalar{
		{"ascii", [2]any{"plain", ""}},
		{"bigint", [2]any{int64(math.MinInt64), int64(math.MaxInt64)}},
		{"blob", [2]any{[]byte{0, 255, 127}, []byte{}}},
		{"boolean", [2]any{true, false}},
		{"date", [2]any{time.Date(1969, 7, 20, 0, 0, 0, 0, time.UTC), time.Date(2200, 12, 31, 0, 0, 0, 0, time.UTC)}},
		{"decimal", [2]any{decimal, inf.NewDec(0, -3)}},
		{"double", [2]any{-1.5, math.SmallestNonzeroFloat64}},
		{"duration", [2]any{gocql.Duration{Months: -1, Days: -2, Nanoseconds: -3}, gocql.Duration{Months: 14, Days: 31, Nanoseconds: 1 << 62}}},
		{"float", [2]any{float32(0.25), float32(math.Inf(1))}},
		{"inet", [2]any{net.ParseIP("127.0.0.1"), net.ParseIP("2001:db8::1")}},
		{"int", [2]any{math.MinInt32, math.MaxInt32}},
		{"smallint", [2]any{int16(math.MinInt16), int16(math.MaxInt16)}},
		{"text", [2]any{"ünï'cødé 🐘", strings.Repeat("x", 70000)}},
		{"time", [2]any{24*time.Hour - time.Nanosecond, time.Duration(0)}},
		{"timestamp", [2]any{time.Date(2000, 2, 29, 23, 59, 58, 123e6, time.UTC), time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"timeuuid", [2]any{uuid("50554d6e-29bb-11e5-b345-feff819cdc9f"), uuid("00000000-0000-1000-8080-808080808080")}},
		{"tinyint", [2]any{int8(math.MinInt8), int8(math.MaxInt8)}},
		{"uuid", [2]any{uuid("123e4567-e89b-12d3-a456-426614174000"), uuid("00000000-0000-0000-0000-000000000000")}},
		{"varchar", [2]any{"same as text", ""}},
		{"varint", [2]any{huge, big.NewInt(0)}},
	}
}

func scalars(session *gocql.Session) error {
	names, all := []string{"id"}, scalarValues()
	for _, scalar := range all {
		names = append(names, "c_"+scalar.name)
	}
	insert := "INSERT INTO " + keyspace + ".scalars (" + strings.Join(names, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(all)) + ")"
	query := "SELECT * FROM " + keyspace + ".scalars WHERE id = ?"
	for row := 0; row < 2; row++ {
		values := []any{row}
		for _, scalar := range all {
			values = append(values, scalar.values[row])
		}
		if err := session.Query(insert, values...).Exec(); err != nil {
			return err
		}
		got := map[string]any{}
		if err := session.Query(query, row).MapScan(got); err != nil {
			return err
		}
		for _, scalar := range all {
			check(scalar.name+" comes back", got["c_"+scalar.name], scalar.values[row])
		}
	}
	unset := []any{0, "new"}
	for range all[1:] {
		unset = append(unset, gocql.UnsetValue)
	}
	if err := session.Query(insert, unset...).Exec(); err != nil {
		return err
	}
	var text string
	var number int
	err := session.Query("SELECT c_ascii, c_int FROM "+keyspace+".scalars WHERE id = ?", 0).Scan(&text, &number)
	check("unset values leave the old ones", []any{text, number}, []any{"new", math.MinInt32})
	return err
}
