//! Terms become sources of values; what each bind marker stands for is noted on the way.

use tare_cql::statement::{Function, Literal, Term};
use tare_cql::types::{Type, ValueError};

use crate::query::failure::Failure;
use crate::query::plan::{Call, Source};

/// Calls of functions in one statement at most.
const CALLS_MAX: usize = 65_535;

/// Name and type of each bind marker.
pub(super) type Markers = Vec<(String, Type)>;

pub(super) struct Terms<'a> {
    names: &'a [Option<String>],
    markers: Vec<Option<(String, Type)>>,
    calls: Vec<Call>,
}

impl<'a> Terms<'a> {
    /// `names` are those of the markers, in order.
    pub(super) fn new(names: &'a [Option<String>]) -> Self {
        Self { names, markers: vec![None; names.len()], calls: Vec::new() }
    }

    /// Name and type of every marker, and the calls in the order in which to make them.
    pub(super) fn finish(self) -> Result<(Markers, Vec<Call>), Failure> {
        let markers = self.markers.into_iter().collect::<Option<_>>();
        let nowhere = || Failure::invalid("a bind marker stands where none is supported");
        Ok((markers.ok_or_else(nowhere)?, self.calls))
    }

    /// Notes what a marker stands for; its name is this one unless it has its own.
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
            *marker = Some((own.unwrap_or_else(|| name.to_owned()), kind));
        }
        Ok(Source::Marker(index))
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
            Term::Literal(literal) => constant(literal, name, kind).map(Source::Literal),
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

    /// The argument in the first of the function's types that fits.
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
        ValueError::Literal { literal, .. } => {
            Failure::Invalid(format!("Invalid {literal} constant for \"{name}\" of type {kind}"))
        }
        error => Failure::Invalid(format!("{name}: {error}")),
    })
}
