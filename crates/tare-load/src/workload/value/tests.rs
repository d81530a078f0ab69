use super::*;
use proptest::prelude::*;

fn form(name: &str, size: usize) -> (Type, Form) {
    let kind = Type::scalar(name).unwrap();
    let form = Form::of(&kind, size, "").unwrap();
    (kind, form)
}

fn bytes(form: &Form, number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    form.put(number, &mut bytes);
    bytes
}

#[test]
fn values_match_cqlsh() {
    let check = |name: &str, number: u64, text: &str| {
        let (kind, form) = form(name, 4);
        assert_eq!(kind.print(&bytes(&form, number)).to_string(), text, "{name}");
    };
    check("ascii", 17, "'0017'");
    check("text", 17, "'0017'");
    check("blob", 17, "0x00000011");
    check("boolean", 1, "true");
    check("tinyint", 100, "100");
    check("smallint", 1_000, "1000");
    check("int", 100_000, "100000");
    check("bigint", 1 << 40, "1099511627776");
    check("varint", 200, "200");
    check("decimal", 200, "0x0000000000c8");
    check("float", 3, "3.0");
    check("double", 3, "3.0");
    check("date", 1, "'1970-01-02'");
    check("duration", 1 | 2 << 4 | 3 << 9, "0x020406");
    check("inet", 0x7f00_0001, "'127.0.0.1'");
    assert!(Form::of(&Type::Counter, 8, "").is_none());
    let user = Form::of(&Type::Text, 9, "user").unwrap();
    assert_eq!(bytes(&user, 42), b"user00042");
    assert_eq!(user.number(b"user00042"), Some(42));
    assert_eq!(user.number(b"user42"), None);
    assert_eq!(user.capacity(), 100_000);
}

#[test]
fn distributions_parse_and_keep_their_ends() {
    for text in ["34", "uniform:1:100", "gaussian:10:20"] {
        let spread: Distribution = text.parse().unwrap();
        assert_eq!(spread.to_string(), text);
        let drawn: Vec<u64> = (0..2_000).map(|n| spread.draw(n * 77)).collect();
        assert!(drawn.iter().all(|n| (spread.least()..=spread.most()).contains(n)), "{text}");
        let distinct = drawn.iter().collect::<std::collections::BTreeSet<_>>().len() as u64;
        assert!(distinct * 10 > (spread.most() - spread.least()) * 7, "{text}: {distinct}");
    }
    for bad in ["", "x", "uniform:5:1", "uniform:5", "zipf:1:2", "-1"] {
        assert!(bad.parse::<Distribution>().is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn numbers_read_back_in_order(word: u64, other: u64, size in 1usize..30) {
        for name in SCALARS {
            let (kind, form) = form(name, size);
            let (number, other) = (word % form.capacity(), other % form.capacity());
            let (first, second) = (bytes(&form, number), bytes(&form, other));
            prop_assert!(kind.validate(&first).is_ok(), "{} {}", name, number);
            let mut same = Comparison::with(&first);
            form.put(number, &mut same);
            prop_assert!(same.is_same());
            prop_assert_eq!(form.number(&first), Some(number), "{}", name);
            prop_assert_eq!(number == other, first == second);
            // Types whose bytes compare as their values do.
            if matches!(name, "ascii" | "blob" | "bigint" | "int" | "date" | "inet" | "double") {
                prop_assert_eq!(number.cmp(&other), first.cmp(&second), "{}", name);
            }
            let drawn = bytes(&form, form.of_word(word));
            prop_assert!(kind.validate(&drawn).is_ok(), "{} of {}", name, word);
        }
    }
}
