//! nginx modules without a memory-safe engine: their directives are refused with the reason.

use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::{BlockPlan, Feature};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct LeftOutConf from LeftOutInput {
        /// Perl handler.
        /// Refused: there is no Perl interpreter; use an application server behind `proxy_pass`.
        perl: Refused,
        /// Directory of Perl modules.
        /// Refused: there is no Perl interpreter.
        perl_modules: Refused,
        /// Perl module to load.
        /// Refused: there is no Perl interpreter.
        perl_require: Refused,
        /// Variable computed by a Perl function.
        /// Refused: there is no Perl interpreter; `map` and `set` compute variables.
        perl_set: Refused,
        /// Transforms responses by a style sheet.
        /// Refused: no XSLT engine is both complete and memory-safe; transform behind `proxy_pass`.
        xslt_stylesheet: Refused,
        /// Parameter of style sheets.
        /// Refused: no XSLT engine is both complete and memory-safe.
        xslt_param: Refused,
        /// Text parameter of style sheets.
        /// Refused: no XSLT engine is both complete and memory-safe.
        xslt_string_param: Refused,
        /// Media types to transform.
        /// Refused: no XSLT engine is both complete and memory-safe.
        xslt_types: Refused,
        /// Preserves `Last-Modified`.
        /// Refused: no XSLT engine is both complete and memory-safe.
        xslt_last_modified: Refused,
        /// File with entity definitions.
        /// Refused: no XSLT engine is both complete and memory-safe.
        xml_entities: Refused,
        /// Loads external entities.
        /// Refused: no XSLT engine is both complete and memory-safe.
        xml_external_entities: Refused,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Value for Refused {
    const SYNTAX: &'static str = "value";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (why, hint) = match d.name.bytes.starts_with(b"perl") {
            true => ("there is no Perl interpreter", "use an application server behind \"proxy_pass\""),
            false => ("there is no memory-safe engine for XSLT", "transform the response behind \"proxy_pass\""),
        };
        Err(Problem::directive(format!("is not supported: {why}")).hint(hint))
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
