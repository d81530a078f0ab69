//! Turns terms into sources of values and notes the type of each bind marker.

use tare_cql::statement::{Function, Literal, Term};
use tare_cql::types::{Type, ValueError};

use crate::query::collections::{has_order, in_order};
use crate::query::failure::Failure;
use crate::query::plan::{Call, Source};

/// Calls of functions that one statement may have.
const CALLS_MAX: usize = 65_535;

/// Name and type of each bind marker.
pub(super) type Markers = Vec<(String, Type)>;

pub(super) struct Terms<'a> {
    names: &'a [Option<String>],
    markers: Vec<Option<(String, Type)>>,
    calls: Vec<Call>,
}

impl<'a> Terms<'a> {
    /// `names` are the names of the markers, in order.
    pub(super) fn new(names: &'a [Option<String>]) -> Self {
        Self { names, markers: vec![None; names.len()], calls: Vec::new() }
    }

    /// The name and type of every marker, and the calls in the order in which to make them.
    pub(super) fn finish(self) -> Result<(Markers, Vec<Call>), Failure> {
        let markers = self.markers.into_iter().collect::<Option<_>>();
        let nowhere = || Failure::invalid("a bind marker is in a place where none is supported");
        Ok((markers.ok_or_else(nowhere)?, self.calls))
    }

    /// Notes the type of a marker. Its name is this one unless it has its own.
    pub(super) fn marker(
        &mut self,
        position: usize,
        name: &str,
        kind: Type,
    ) -> Result<Source, Failure> {
        let index = u16::try_from(position);
        let index = index.map_err(|_| Failure::invalid("too many bind markers"))?;
        if let Some(marker) = self.markers.get_mut(position) {
            let own = self.names.get(position).cloned().flatten();
            *marker = Some((own.unwrap_or_else(|| name.to_owned()), kind.clone()));
        }
        Ok(match has_order(&kind) {
            true => Source::Collection(index),
            false => Source::Marker(index),
        })
    }

    /// The source of a value of a type.
    pub(super) fn source(
        &mut self,
        term: &Term,
        name: &str,
        kind: &Type,
    ) -> Result<Source, Failure> {
        match term {
            Term::Marker(position) => self.marker(*position, name, kind.clone()),
            Term::Literal(literal) => {
                let constant = constant(literal, name, kind)?;
                let in_order = |value: Vec<u8>| match has_order(kind) {
                    true => in_order(kind, &value),
                    false => Ok(value),
                };
                constant.map(in_order).transpose().map(Source::Literal)
            }
            Term::Call(function, arguments) => {
                let returned = function.returns();
                let fits =
                    returned == *kind || matches!((&returned, kind), (Type::Timeuuid, Type::Uuid));
                if !fits {
                    return Err(Failure::Invalid(format!(
                        "Type error: cannot assign result of function system.{} (type {returned}) \
                         to {name} (type {kind})",
                        function.name()
                    )));
                }
                self.call(*function, arguments)
            }
            Term::Token(_) => Err(Failure::invalid(
                "token() of values can only be compared with token() of the partition key",
            )),
            Term::Tuple(_) => Err(Failure::Invalid(format!(
                "Invalid tuple type literal for {name} of type {kind}"
            ))),
        }
    }

    fn call(&mut self, function: Function, arguments: &[Term]) -> Result<Source, Failure> {
        let arity = function.arity();
        if arguments.len() != arity {
            return Err(Failure::Invalid(format!(
                "Invalid number of arguments in call to function system.{}: {arity} required but \
                 {} provided",
                function.name(),
                arguments.len()
            )));
        }
        let argument = match arguments.first() {
            Some(term) => Some(self.argument(function, term)?),
            None => None,
        };
        if self.calls.len() == CALLS_MAX {
            return Err(Failure::invalid("too many calls of functions"));
        }
        let index = u16::try_from(self.calls.len()).unwrap_or(u16::MAX);
        self.calls.push(Call { function, argument });
        Ok(Source::Call(index))
    }

    /// The argument, in the first of the function's types that fits.
    fn argument(&mut self, function: Function, term: &Term) -> Result<(Source, Type), Failure> {
        let name = format!("arg0(system.{})", function.name());
        let kinds = function.argument_types();
        let fits = |kind: &&Type| match term {
            Term::Literal(literal) => literal.encode(kind).is_ok(),
            Term::Call(inner, _) => inner.returns() == **kind,
            Term::Marker(_) | Term::Token(_) | Term::Tuple(_) => true,
        };
        let Some(kind) = kinds.iter().find(fits) else {
            return Err(Failure::Invalid(format!(
                "Type error: the argument of function system.{} is of the wrong type",
                function.name()
            )));
        };
        Ok((self.source(term, &name, kind)?, kind.clone()))
    }
}

/// The bytes of a constant; `None` is null.
fn constant(literal: &Literal, name: &str, kind: &Type) -> Result<Option<Vec<u8>>, Failure> {
    literal.encode(kind).map_err(|error| match error {
        ValueError::Literal { literal: part, kind: within } if within != *kind.unfrozen() => {
            let whole = literal.kind().to_ascii_lowercase();
            Failure::Invalid(format!(
                "Invalid {whole} literal for {name}: a {part} constant is not of type {within}"
            ))
        }
        ValueError::NullInside => Failure::Invalid(error.to_string()),
        ValueError::Literal { literal, .. } => {
            Failure::Invalid(format!("Invalid {literal} constant for \"{name}\" of type {kind}"))
        }
        error => Failure::Invalid(format!("{name}: {error}")),
    })
}
