//! Modules of nginx that need an engine which nobody has written in a memory-safe language: their directives are refused with
//! the reason, instead of being unknown.

use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::{BlockPlan, Feature};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What nginx's Perl and XSLT modules are told.
    pub struct LeftOutConf from LeftOutInput {
        /// A handler in Perl.
        /// Refused: there is no Perl interpreter here; have an application server behind `proxy_pass` answer.
        perl: Refused,
        /// Where modules of Perl stand.
        /// Refused: as `perl`.
        perl_modules: Refused,
        /// A module of Perl.
        /// Refused: as `perl`.
        perl_require: Refused,
        /// A variable that a function in Perl computes.
        /// Refused: as `perl`; `map` and `set` compute variables.
        perl_set: Refused,
        /// A style sheet that responses are transformed by.
        /// Refused: there is no engine for XSLT that is both complete and memory-safe; transform behind `proxy_pass`.
        xslt_stylesheet: Refused,
        /// A parameter of style sheets.
        /// Refused: as `xslt_stylesheet`.
        xslt_param: Refused,
        /// A parameter of style sheets, as text.
        /// Refused: as `xslt_stylesheet`.
        xslt_string_param: Refused,
        /// Media types that are transformed.
        /// Refused: as `xslt_stylesheet`.
        xslt_types: Refused,
        /// Whether `Last-Modified` stays.
        /// Refused: as `xslt_stylesheet`.
        xslt_last_modified: Refused,
        /// A file of entities.
        /// Refused: as `xslt_stylesheet`.
        xml_entities: Refused,
        /// Whether entities may name files.
        /// Refused: as `xslt_stylesheet`.
        xml_external_entities: Refused,
    }
}

/// A directive that is not done, for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Value for Refused {
    const SYNTAX: &'static str = "value";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let why = match d.name.bytes.starts_with(b"perl") {
            true => "there is no Perl interpreter here: have an application server behind \"proxy_pass\" answer",
            false => "there is no memory-safe engine for XSLT: have a server behind \"proxy_pass\" transform",
        };
        Err(Problem::directive("is not supported").hint(why))
    }
}

/// The feature: nothing of it is ever planned.
pub struct LeftOut;

impl Feature for LeftOut {
    fn table(&self) -> Table {
        LeftOutConf::table("left_out", Area::Http)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic;

    #[test]
    fn the_reason_is_said() {
        for (name, why) in [("perl_set", "Perl"), ("xslt_stylesheet", "XSLT"), ("xml_entities", "XSLT")] {
            let problem = Refused::parse(&mut Cx::default(), &synthetic(name, "x")).expect_err("refused");
            assert!(format!("{problem:?}").contains(why), "{problem:?}");
        }
    }
}
