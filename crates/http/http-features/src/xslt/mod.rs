//! xslt (nginx: `ngx_http_xslt_filter_module`): transforms XML responses with XSLT stylesheets (crate `xslt`).
//! A response is read whole and transformed on the pool, behind the filters of its text and before `charset` and `ssi`.

mod conf;
mod files;
mod run;
#[cfg(test)]
mod tests;

use conf::{Entities, NamedParams, Sheets, XsltTypes};
use conf_schema::value::Flag;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct XsltConf from XsltInput {
        /// File of entity declarations, which takes the place of a document's external subset.
        /// Differs: a relative path is relative to the prefix; nginx's is relative to the working directory.
        xml_entities: Entities,
        /// Reads external entities of documents from files.
        xml_external_entities: Flag = "off",
        /// Preserves `Last-Modified` and a weak `ETag`.
        xslt_last_modified: Flag = "off",
        /// Parameter of the stylesheets: an XPath expression with variables.
        xslt_param: NamedParams,
        /// Parameter of the stylesheets: a text with variables.
        xslt_string_param: NamedParams,
        /// Transforms responses with a stylesheet and its parameters; several lines apply one after another.
        /// Differs: transformations have limits of steps and memory; `exsl:document` and encodings that cannot be
        /// written are refused with the configuration.
        xslt_stylesheet: Sheets,
        /// Media types that are transformed, besides text/xml.
        xslt_types: XsltTypes = "text/xml",
    }
}

/// Both kinds of parameters are one list in nginx: a level that has a line inherits none.
fn inherit(inner: &mut dyn Any, outer: &dyn Any) {
    let (Some(inner), Some(outer)) = (inner.downcast_mut::<XsltInput>(), outer.downcast_ref::<XsltInput>()) else {
        return;
    };
    let mut outer = outer.clone();
    if inner.xslt_param.is_some() || inner.xslt_string_param.is_some() {
        (outer.xslt_param, outer.xslt_string_param) = (None, None);
    }
    inner.inherit(&outer);
}

pub struct XsltFilter;

impl Feature for XsltFilter {
    fn table(&self) -> FeatureTable {
        FeatureTable { inherit, ..XsltConf::table("xslt", ContextArea::Http) }
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<XsltConf>() else { return Ok(()) };
        if conf.xslt_stylesheet.is_some() {
            block.location.late_transform = Some(Arc::new(run::Stylesheets { conf }));
        }
        Ok(())
    }
}
