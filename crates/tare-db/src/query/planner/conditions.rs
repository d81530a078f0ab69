//! Plans WHERE: which partitions a statement concerns, and which of their rows.

use tare_cql::statement::{Comparison, Relation, Subject, Term, Test};
use tare_cql::types::Type;

use super::terms::Terms;
use super::{ColumnRole, find};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::plan::{
    KeyCondition, KeyValues, Partitions, Rows, SliceBound, Slices, Source, TokenBound, TokenValue,
    Tuple,
};

/// The kind of statement, which decides what the conditions may leave out and how errors are
/// worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Select,
    /// UPDATE, or DELETE of columns, which needs whole keys.
    Rows,
    /// DELETE of rows, which also takes slices.
    Ranges,
    /// UPDATE or DELETE of static columns, which belong to partitions.
    Statics,
}

/// Resolves all conditions. The order of the keys has to serve them.
pub(super) fn conditions<'r>(
    table: &Table,
    terms: &mut Terms<'_>,
    relations: impl IntoIterator<Item = &'r Relation>,
    purpose: Purpose,
) -> Result<(Partitions, Rows), Failure> {
    let mut given = ParsedConditions {
        keys: vec![None; table.partition.len()],
        tokens: Vec::new(),
        equal: Vec::new(),
        low: None,
        high: None,
    };
    for relation in relations {
        match &relation.subject {
            Subject::Token(names) => given.token(table, terms, names, &relation.test)?,
            Subject::Column(name) => given.column(table, terms, name, &relation.test, purpose)?,
            Subject::Columns(names) => given.columns(table, terms, names, &relation.test)?,
        }
    }
    let partitions = given.partitions(table, purpose)?;
    let rows = given.rows(table, purpose, &partitions)?;
    Ok((partitions, rows))
}

/// The conditions of all relations, in the order of the keys.
struct ParsedConditions {
    keys: Vec<Option<KeyCondition>>,
    tokens: Vec<TokenBound>,
    /// Conditions on clustering columns, each with the position of its first column.
    equal: Vec<(usize, KeyCondition)>,
    low: Option<(usize, SliceBound)>,
    high: Option<(usize, SliceBound)>,
}

impl ParsedConditions {
    fn token(
        &mut self,
        table: &Table,
        terms: &mut Terms<'_>,
        names: &[String],
        test: &Test,
    ) -> Result<(), Failure> {
        if !names.iter().eq(table.partition.iter().map(|column| &column.name)) {
            let key: Vec<_> = table.partition.iter().map(|column| &*column.name).collect();
            return Err(Failure::Invalid(format!(
                "The token function arguments must be in the partition key order: {}",
                key.join(", ")
            )));
        }
        let Test::Compare(comparison, term) = test else {
            return Err(Failure::invalid("IN is not supported with the token function"));
        };
        let value = match term {
            Term::Token(values) if values.len() == table.partition.len() => {
                let columns = table.partition.iter().zip(values);
                let sources =
                    columns.map(|(column, term)| terms.source(term, &column.name, &column.kind));
                TokenValue::Of(sources.collect::<Result<_, _>>()?)
            }
            Term::Token(_) => {
                return Err(Failure::invalid(
                    "Invalid number of arguments for the token() function",
                ));
            }
            term => TokenValue::Number(terms.source(term, "partition key token", &Type::Bigint)?),
        };
        self.tokens.push(TokenBound { comparison: *comparison, value });
        Ok(())
    }

    fn column(
        &mut self,
        table: &Table,
        terms: &mut Terms<'_>,
        name: &str,
        test: &Test,
        purpose: Purpose,
    ) -> Result<(), Failure> {
        let (place, column) = find(table, name)?;
        match place {
            ColumnRole::Regular | ColumnRole::Static => Err(match purpose {
                Purpose::Select => filtering(),
                Purpose::Rows | Purpose::Ranges | Purpose::Statics => Failure::Invalid(format!(
                    "Non PRIMARY KEY columns found in where clause: {name}"
                )),
            }),
            ColumnRole::Partition(position) => {
                let condition = key_condition(terms, std::slice::from_ref(column), name, test)?;
                let condition = condition.ok_or_else(|| match purpose {
                    Purpose::Select => filtering(),
                    Purpose::Rows | Purpose::Ranges | Purpose::Statics => Failure::invalid(
                        "Only EQ and IN relation are supported on the partition key (unless you \
                         use the token() function)",
                    ),
                })?;
                match self.keys[position].replace(condition) {
                    None => Ok(()),
                    Some(_) => Err(restricted_twice(name)),
                }
            }
            ColumnRole::Clustering(position) => {
                let columns = std::slice::from_ref(column);
                self.clustering(terms, position, columns, name, test)
            }
        }
    }

    fn columns(
        &mut self,
        table: &Table,
        terms: &mut Terms<'_>,
        names: &[String],
        test: &Test,
    ) -> Result<(), Failure> {
        let (first, columns) = clustering_columns(table, names)?;
        let name = format!("({})", names.join(","));
        self.clustering(terms, first, columns, &name, test)
    }

    fn clustering(
        &mut self,
        terms: &mut Terms<'_>,
        first: usize,
        columns: &[Column],
        name: &str,
        test: &Test,
    ) -> Result<(), Failure> {
        if let Some(condition) = key_condition(terms, columns, name, test)? {
            self.equal.push((first, condition));
            return Ok(());
        }
        let Test::Compare(comparison, term) = test else { return Ok(()) };
        let values = tuple(terms, columns, name, term)?;
        let (bound, which, inclusive) = match comparison {
            Comparison::Greater => (&mut self.low, "start", false),
            Comparison::GreaterOrEqual => (&mut self.low, "start", true),
            Comparison::Less => (&mut self.high, "end", false),
            Comparison::LessOrEqual | Comparison::Equal => (&mut self.high, "end", true),
        };
        if bound.is_some() {
            return Err(Failure::Invalid(format!(
                "More than one restriction was found for the {which} bound on {name}"
            )));
        }
        *bound = Some((first, SliceBound { columns: columns.len(), values, inclusive }));
        Ok(())
    }

    fn partitions(&mut self, table: &Table, purpose: Purpose) -> Result<Partitions, Failure> {
        let missing = self.keys.iter().position(Option::is_none);
        let restricted = self.keys.iter().any(Option::is_some);
        if !self.tokens.is_empty() {
            return match purpose {
                _ if restricted => Err(Failure::invalid(
                    "Columns of the partition key cannot be restricted by both a normal relation \
                     and a token relation",
                )),
                Purpose::Select => Ok(Partitions::Tokens(std::mem::take(&mut self.tokens))),
                Purpose::Rows | Purpose::Ranges | Purpose::Statics => Err(Failure::invalid(
                    "The token function cannot be used in WHERE clauses for UPDATE and DELETE \
                     statements",
                )),
            };
        }
        match (missing, purpose) {
            (Some(missing), Purpose::Rows | Purpose::Ranges | Purpose::Statics) => {
                Err(Failure::Invalid(format!(
                    "Some partition key parts are missing: {}",
                    table.partition[missing].name
                )))
            }
            (Some(_), Purpose::Select) if restricted => Err(filtering()),
            (Some(_), Purpose::Select) => Ok(Partitions::Tokens(Vec::new())),
            (None, _) => {
                let keys: Vec<KeyCondition> = self.keys.drain(..).flatten().collect();
                let one: Option<Vec<_>> = keys.iter().map(parts).collect();
                Ok(one.map_or(Partitions::Some(keys), |one| Partitions::One(one.concat())))
            }
        }
    }

    fn rows(
        &mut self,
        table: &Table,
        purpose: Purpose,
        partitions: &Partitions,
    ) -> Result<Rows, Failure> {
        let name = |position: usize| table.clustering[position].name.as_str();
        let sliced = self.low.as_ref().or(self.high.as_ref()).map(|(first, _)| *first);
        if let (Some((low, _)), Some((high, _))) = (&self.low, &self.high)
            && low != high
        {
            return Err(Failure::invalid(
                "Slice restrictions that start at different columns are not supported",
            ));
        }
        self.equal.sort_by_key(|(first, _)| *first);
        let mut next = 0;
        for (first, condition) in &self.equal {
            if *first < next {
                return Err(restricted_twice(name(*first)));
            }
            if let Some(slice) = sliced.filter(|slice| slice <= first) {
                return Err(match slice == *first {
                    true => restricted_twice(name(*first)),
                    false => Failure::Invalid(format!(
                        "Clustering column \"{}\" cannot be restricted (preceding column \"{}\" \
                         is restricted by a non-EQ relation)",
                        name(*first),
                        name(slice)
                    )),
                });
            }
            if *first > next {
                return Err(preceding(name(*first), name(next)));
            }
            next = first + condition.columns;
        }
        match sliced {
            Some(slice) if slice > next => return Err(preceding(name(slice), name(next))),
            Some(slice) if slice < next => return Err(restricted_twice(name(slice))),
            _ => {}
        }
        if sliced.is_some() && purpose == Purpose::Rows {
            return Err(Failure::invalid(
                "Slice restrictions are not supported on the clustering columns in UPDATE \
                 statements and in DELETE statements of columns",
            ));
        }
        let restricted = next > 0 || sliced.is_some();
        if purpose == Purpose::Statics {
            return match restricted {
                false => Ok(Rows::One(Vec::new())),
                true => Err(Failure::invalid(
                    "Invalid restrictions on clustering columns since the UPDATE or DELETE \
                     statement modifies only static columns",
                )),
            };
        }
        let whole = next == table.clustering.len() && sliced.is_none();
        if !whole && purpose == Purpose::Rows {
            return Err(Failure::Invalid(format!(
                "Some clustering keys are missing: {}",
                name(next)
            )));
        }
        match (partitions, purpose) {
            (Partitions::Tokens(_), Purpose::Select) if restricted => return Err(filtering()),
            _ => {}
        }
        let equal: Vec<KeyCondition> =
            self.equal.drain(..).map(|(_, condition)| condition).collect();
        if whole && let Some(one) = equal.iter().map(parts).collect::<Option<Vec<_>>>() {
            return Ok(Rows::One(one.concat()));
        }
        let low = self.low.take().map(|(_, bound)| bound);
        let high = self.high.take().map(|(_, bound)| bound);
        Ok(Rows::Slices(Slices { equal, low, high }))
    }
}

fn restricted_twice(name: &str) -> Failure {
    Failure::Invalid(format!(
        "{name} cannot be restricted by more than one relation if it includes an Equal"
    ))
}

fn preceding(name: &str, before: &str) -> Failure {
    Failure::Invalid(format!(
        "PRIMARY KEY column \"{name}\" cannot be restricted as preceding column \"{before}\" is \
         not restricted"
    ))
}

/// The error of a query that would have to look at rows that it does not return.
fn filtering() -> Failure {
    Failure::invalid(
        "Cannot execute this query as it might involve data filtering and thus may have \
         unpredictable performance. If you want to execute this query despite the performance \
         unpredictability, use ALLOW FILTERING",
    )
}

/// The clustering columns of a condition on several columns, and the position of the first.
pub(super) fn clustering_columns<'t>(
    table: &'t Table,
    names: &[String],
) -> Result<(usize, &'t [Column]), Failure> {
    let mut first = None;
    for (offset, name) in names.iter().enumerate() {
        let (ColumnRole::Clustering(position), _) = find(table, name)? else {
            return Err(Failure::Invalid(format!(
                "Multi-column relations can only be applied to clustering columns but was applied \
                 to: {name}"
            )));
        };
        if position != *first.get_or_insert(position) + offset {
            return Err(Failure::Invalid(format!(
                "Clustering columns must appear in the PRIMARY KEY order in multi-column \
                 relations: ({})",
                names.join(", ")
            )));
        }
    }
    let first = first.unwrap_or(0);
    Ok((first, &table.clustering[first..first + names.len()]))
}

/// The values of a condition that allows only one, in the order of its columns.
fn parts(condition: &KeyCondition) -> Option<Vec<Source>> {
    match &condition.values {
        KeyValues::Listed(tuples) => match tuples.as_slice() {
            [Tuple::Parts(parts)] => Some(parts.clone()),
            _ => None,
        },
        KeyValues::Marker(_) => None,
    }
}

/// Plans `=` and IN; `None` for another comparison.
pub(super) fn key_condition(
    terms: &mut Terms<'_>,
    columns: &[Column],
    name: &str,
    test: &Test,
) -> Result<Option<KeyCondition>, Failure> {
    let values = match test {
        Test::Compare(Comparison::Equal, term) => {
            KeyValues::Listed(vec![tuple(terms, columns, name, term)?])
        }
        Test::Compare(..) => return Ok(None),
        Test::In(list) => {
            let tuples = list.iter().map(|term| tuple(terms, columns, name, term));
            KeyValues::Listed(tuples.collect::<Result<_, _>>()?)
        }
        Test::InMarker(position) => {
            let inner = name.trim_start_matches('(').trim_end_matches(')');
            let kind = Type::List(Box::new(tuple_type(columns)));
            KeyValues::Marker(terms.marker(*position, &format!("in({inner})"), kind)?)
        }
    };
    Ok(Some(KeyCondition { columns: columns.len(), values }))
}

fn tuple_type(columns: &[Column]) -> Type {
    match columns {
        [column] => column.kind.clone(),
        columns => Type::Tuple(columns.iter().map(|column| column.kind.clone()).collect()),
    }
}

pub(super) fn tuple(
    terms: &mut Terms<'_>,
    columns: &[Column],
    name: &str,
    term: &Term,
) -> Result<Tuple, Failure> {
    match (term, columns) {
        (Term::Tuple(parts), columns) => {
            if parts.len() != columns.len() {
                return Err(Failure::Invalid(format!(
                    "Expected {} elements in value for tuple {name}, but got {}",
                    columns.len(),
                    parts.len()
                )));
            }
            let parts = parts.iter().zip(columns);
            let sources =
                parts.map(|(term, column)| terms.source(term, &column.name, &column.kind));
            sources.collect::<Result<_, _>>().map(Tuple::Parts)
        }
        (term, [column]) => {
            terms.source(term, name, &column.kind).map(|source| Tuple::Parts(vec![source]))
        }
        (term, columns) => terms.source(term, name, &tuple_type(columns)).map(Tuple::Whole),
    }
}
