//! nginx modules without a memory-safe engine: their directives are refused with the reason.

use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::{BlockPlan, Feature};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct LeftOutConf from LeftOutInput {
        /// Perl handler.
        /// Refused: there is no Perl interpreter; use an application server behind `proxy_pass`.
        perl: LeftOutDirective,
        /// Directory of Perl modules.
        /// Refused: there is no Perl interpreter.
        perl_modules: LeftOutDirective,
        /// Perl module to load.
        /// Refused: there is no Perl interpreter.
        perl_require: LeftOutDirective,
        /// Variable computed by a Perl function.
        /// Refused: there is no Perl interpreter; `map` and `set` compute variables.
        perl_set: LeftOutDirective,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOutDirective;

impl ValueKind for LeftOutDirective {
    const SYNTAX: &'static str = "value";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, _: &Directive) -> Result<Self, Problem> {
        let hint = "use an application server behind \"proxy_pass\"";
        Err(Problem::directive("is not supported: there is no Perl interpreter").hint(hint))
    }
}

/// The feature: nothing of it is ever planned.
pub struct LeftOut;

impl Feature for LeftOut {
    fn table(&self) -> FeatureTable {
        LeftOutConf::table("left_out", ContextArea::Http)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    #[test]
    fn the_reason_is_said() {
        for (name, why) in [("perl_set", "Perl"), ("perl_require", "Perl")] {
            let problem =
                LeftOutDirective::parse(&mut Cx::default(), &synthetic_directive(name, "x")).expect_err("refused");
            assert!(format!("{problem:?}").contains(why), "{problem:?}");
        }
    }
}
