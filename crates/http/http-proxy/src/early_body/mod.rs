//! `client_body_early_read` (nginx: `ngx_http_core_module`): reads the request body before other phases.

use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::core_table::Conditions;
use http_engine::request::URI_CHANGES_MAX;
use http_engine::template::is_true;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request};
use http_types::BodyLength;
use http_upstream::body_store;
use observe::Severity;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct EarlyBodyConf from EarlyBodyInput {
        /// Reads the request body before any handler runs if one of the strings is neither empty nor `0`. The body
        /// limits of the server apply.
        client_body_early_read: Conditions,
    }
}

pub struct EarlyBody;

impl Feature for EarlyBody {
    fn table(&self) -> FeatureTable {
        EarlyBodyConf::table("early_body", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conditions) = conf.downcast_ref::<EarlyBodyConf>().and_then(|c| c.client_body_early_read.as_ref())
        else {
            return Ok(());
        };
        block.handle(HandlerOrder::ServerEarlyBody, Arc::new(Read(conditions.0.clone())));
        Ok(())
    }
}

struct Read(Vec<HttpTemplate>);

impl Handler for Read {
    fn run(&self, r: &mut Request) -> Flow {
        // A redirected request was handled before.
        if r.progress.is_internal()
            || r.progress.uri_changes_left() < URI_CHANGES_MAX
            || r.is_subrequest()
            || !self.0.iter().any(|template| is_true(&template.eval(r)))
        {
            return Flow::Declined;
        }
        let limit = r.loc().core.conf.client_max_body_size.0;
        if let Some(BodyLength::Exact(length)) = r.incoming.body_length()
            && limit != 0
            && length > limit
        {
            r.log(Severity::Error, format_args!("client intended to send too large body: {length} bytes"));
            r.refuse_body();
            return Flow::Status(413);
        }
        Flow::Later(Box::new(|mut r| {
            Box::pin(async move {
                let flow = match body_store::read_body(&mut r).await {
                    Ok(_) => Flow::Declined,
                    // The client is silent, or gone: no response, unlike that of `return 408`.
                    Err(408) => {
                        r.out.set_status(408);
                        Flow::Close
                    }
                    Err(499) => {
                        r.out.set_status(400);
                        Flow::Close
                    }
                    Err(status) => Flow::Status(status),
                };
                (r, flow)
            })
        }))
    }
}
