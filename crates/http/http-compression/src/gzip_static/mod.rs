//! gzip_static (nginx: `ngx_http_gzip_static_module`): sends `name.gz` in place of `name`.

use crate::shared::compress::Coding;
use crate::shared::static_coded::{StaticCoded, StaticMode};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::{BlockPlan, Feature, HandlerOrder};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct GzipStaticConf from GzipStaticInput {
        /// Serves the file with the suffix `.gz` instead of the original, to clients that accept it; `always`: to all
        /// clients.
        gzip_static: StaticMode = "off",
    }
}

pub struct GzipStatic;

impl Feature for GzipStatic {
    fn table(&self) -> FeatureTable {
        GzipStaticConf::table("gzip_static", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<GzipStaticConf>()
            && conf.gzip_static != StaticMode::Off
        {
            let handler = StaticCoded { coding: Coding::Gzip, mode: conf.gzip_static };
            block.handle(HandlerOrder::CompressedFiles, Arc::new(handler));
        }
        Ok(())
    }
}
