//! tare-db: the reference database on the host.

use super::{Consumer, Context, Engine, Flags, FlagsError, Instance, InstanceFlags, Text};
use super::{comment, quote};

#[derive(Debug)]
pub(super) struct TareDb;

impl Consumer for TareDb {
    fn name(&self) -> &'static str {
        "tare-db"
    }

    fn help(&self) -> &'static str {
        "the options of the reference database"
    }

    fn engine(&self) -> Engine {
        Engine::TareDb
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        let context = &Context { engine: Engine::TareDb, ..*context };
        let instances = context.instances()?;
        Ok(Flags {
            consumer: self.name(),
            instances: instances.iter().map(|instance| one(context, instance)).collect(),
            shared: Vec::new(),
            capabilities: Vec::new(),
            notes: context.common_notes(&instances),
        })
    }
}

fn one(context: &Context<'_>, instance: &Instance) -> InstanceFlags {
    let flags = context.tare_db_options(instance, true, false);
    let mut body = String::from("options=(\n");
    for flag in &flags {
        body += &format!("{}  {}\n", comment(flag, "  "), quote::shell(&flag.text));
    }
    // In the background, so that the next instance starts too.
    let ampersand = if context.request.instances > 1 { " &" } else { "" };
    body += &format!(")\ntare db \"${{options[@]}}\"{ampersand}\n");
    InstanceFlags::new(
        instance,
        context.name(instance.number),
        flags,
        vec![Text {
            title: format!("tare db (bash): {}", context.heading(instance)),
            language: "bash",
            body,
        }],
    )
}
