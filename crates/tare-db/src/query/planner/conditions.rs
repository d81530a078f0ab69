//! WHERE: which partitions and which of their rows.

use tare_cql::statement::{Comparison, Relation, Subject, Term, Test};
use tare_cql::types::Type;

use super::terms::Terms;
use super::{Place, find};
use crate::query::catalog::{Column, Table};
use crate::query::failure::Failure;
use crate::query::plan::{
    Alternatives, Choice, Edge, Partitions, Rows, Slices, Source, TokenBound, TokenValue, Tuple,
};

/// What the conditions are for: it decides on what may be left out, and on the words of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Select {
        allow_filtering: bool,
    },
    /// UPDATE and DELETE of columns: whole keys only.
    Rows,
    /// DELETE of rows: slices too.
    Ranges,
}

/// Resolves all conditions.
pub(super) fn conditions(
    table: &Table,
    terms: &mut Terms<'_>,
    relations: &[Relation],
    purpose: Purpose,
) -> Result<(Partitions, Rows), Failure> {
    let mut given = Given {
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

/// What the relations say, in the order of the keys.
struct Given {
    keys: Vec<Option<Choice>>,
    tokens: Vec<TokenBound>,
    /// With the first clustering column of each.
    equal: Vec<(usize, Choice)>,
    low: Option<(usize, Edge)>,
    high: Option<(usize, Edge)>,
}

impl Given {
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
            Place::Regular => Err(match purpose {
                Purpose::Select { allow_filtering } => filtering(allow_filtering),
                Purpose::Rows | Purpose::Ranges => Failure::Invalid(format!(
                    "Non PRIMARY KEY columns found in where clause: {name}"
                )),
            }),
            Place::Partition(position) => {
                let choice = choice(terms, std::slice::from_ref(column), name, test)?;
                let message = "Only EQ and IN relation are supported on the partition key (unless \
                               you use the token() function)";
                let choice = choice.ok_or_else(|| Failure::invalid(message))?;
                match self.keys[position].replace(choice) {
                    None => Ok(()),
                    Some(_) => Err(twice(name)),
                }
            }
            Place::Clustering(position) => {
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
        let mut first = None;
        for (offset, name) in names.iter().enumerate() {
            let (Place::Clustering(position), _) = find(table, name)? else {
                return Err(Failure::Invalid(format!(
                    "Multi-column relations can only be applied to clustering columns but was \
                     applied to: {name}"
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
        let columns = &table.clustering[first..first + names.len()];
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
        if let Some(choice) = choice(terms, columns, name, test)? {
            self.equal.push((first, choice));
            return Ok(());
        }
        let Test::Compare(comparison, term) = test else { return Ok(()) };
        let values = tuple(terms, columns, name, term)?;
        let (edge, which, inclusive) = match comparison {
            Comparison::Greater => (&mut self.low, "start", false),
            Comparison::GreaterOrEqual => (&mut self.low, "start", true),
            Comparison::Less => (&mut self.high, "end", false),
            Comparison::LessOrEqual | Comparison::Equal => (&mut self.high, "end", true),
        };
        if edge.is_some() {
            return Err(Failure::Invalid(format!(
                "More than one restriction was found for the {which} bound on {name}"
            )));
        }
        *edge = Some((first, Edge { columns: columns.len(), values, inclusive }));
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
                Purpose::Select { .. } => Ok(Partitions::Tokens(std::mem::take(&mut self.tokens))),
                Purpose::Rows | Purpose::Ranges => Err(Failure::invalid(
                    "The token function cannot be used in WHERE clauses for UPDATE and DELETE \
                     statements",
                )),
            };
        }
        match (missing, purpose) {
            (Some(missing), Purpose::Rows | Purpose::Ranges) => Err(Failure::Invalid(format!(
                "Some partition key parts are missing: {}",
                table.partition[missing].name
            ))),
            (Some(_), Purpose::Select { allow_filtering }) if restricted => {
                Err(filtering(allow_filtering))
            }
            (Some(_), Purpose::Select { .. }) => Ok(Partitions::Tokens(Vec::new())),
            (None, _) => {
                let keys: Vec<Choice> = self.keys.drain(..).flatten().collect();
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
        for (first, choice) in &self.equal {
            if *first < next {
                return Err(twice(name(*first)));
            }
            if let Some(slice) = sliced.filter(|slice| slice <= first) {
                return Err(match slice == *first {
                    true => twice(name(*first)),
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
            next = first + choice.columns;
        }
        match sliced {
            Some(slice) if slice > next => return Err(preceding(name(slice), name(next))),
            Some(slice) if slice < next => return Err(twice(name(slice))),
            _ => {}
        }
        if sliced.is_some() && purpose == Purpose::Rows {
            return Err(Failure::invalid(
                "Slice restrictions are not supported on the clustering columns in UPDATE \
                 statements and in DELETE statements of columns",
            ));
        }
        let whole = next == table.clustering.len() && sliced.is_none();
        if !whole && purpose == Purpose::Rows {
            return Err(Failure::Invalid(format!(
                "Some clustering keys are missing: {}",
                name(next)
            )));
        }
        let restricted = next > 0 || sliced.is_some();
        match (partitions, purpose) {
            (Partitions::Tokens(_), Purpose::Select { allow_filtering }) if restricted => {
                return Err(filtering(allow_filtering));
            }
            _ => {}
        }
        let equal: Vec<Choice> = self.equal.drain(..).map(|(_, choice)| choice).collect();
        if whole && let Some(one) = equal.iter().map(parts).collect::<Option<Vec<_>>>() {
            return Ok(Rows::One(one.concat()));
        }
        let low = self.low.take().map(|(_, edge)| edge);
        let high = self.high.take().map(|(_, edge)| edge);
        Ok(Rows::Slices(Slices { equal, low, high }))
    }
}

fn twice(name: &str) -> Failure {
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

/// The words that Cassandra has for both.
pub(super) fn filtering(allowed: bool) -> Failure {
    Failure::invalid(match allowed {
        true => "ALLOW FILTERING is not supported",
        false => {
            "Cannot execute this query as it might involve data filtering and thus may have \
             unpredictable performance. If you want to execute this query despite the performance \
             unpredictability, use ALLOW FILTERING"
        }
    })
}

/// The values of a choice that is none, in the order of its columns.
fn parts(choice: &Choice) -> Option<Vec<Source>> {
    match &choice.values {
        Alternatives::Listed(tuples) => match tuples.as_slice() {
            [Tuple::Parts(parts)] => Some(parts.clone()),
            _ => None,
        },
        Alternatives::Marker(_) => None,
    }
}

/// `=` and IN; `None` for another comparison.
fn choice(
    terms: &mut Terms<'_>,
    columns: &[Column],
    name: &str,
    test: &Test,
) -> Result<Option<Choice>, Failure> {
    let values = match test {
        Test::Compare(Comparison::Equal, term) => {
            Alternatives::Listed(vec![tuple(terms, columns, name, term)?])
        }
        Test::Compare(..) => return Ok(None),
        Test::In(list) => {
            let tuples = list.iter().map(|term| tuple(terms, columns, name, term));
            Alternatives::Listed(tuples.collect::<Result<_, _>>()?)
        }
        Test::InMarker(position) => {
            let inner = name.trim_start_matches('(').trim_end_matches(')');
            let kind = Type::List(Box::new(tuple_type(columns)));
            Alternatives::Marker(terms.marker(*position, &format!("in({inner})"), kind)?)
        }
    };
    Ok(Some(Choice { columns: columns.len(), values }))
}

fn tuple_type(columns: &[Column]) -> Type {
    match columns {
        [column] => column.kind.clone(),
        columns => Type::Tuple(columns.iter().map(|column| column.kind.clone()).collect()),
    }
}

fn tuple(
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
