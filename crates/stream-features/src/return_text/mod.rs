//! return (nginx: `ngx_stream_return_module`): answers with a text and ends the session.

use crate::StreamTemplate;
use crate::build::{Feature, ServerBuild};
use crate::client::SessionClient;
use crate::plan::{Content, ContentFuture, ContentResult};
use crate::session::StreamSession;
use crate::values::place_of_answer;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use observe::Severity;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use variables::Session;

/// Longest time without the client taking bytes.
const PATIENCE: Duration = Duration::from_secs(5);

directives! {
    pub struct ReturnConf from ReturnInput {
        /// Sends a text to the client and closes the connection.
        r#return: Text,
    }
}

#[derive(Clone)]
pub struct Text {
    text: StreamTemplate,
    place: usize,
}

impl ValueKind for Text {
    const SYNTAX: &'static str = "value";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(Text { text: StreamTemplate::parse(cx, d)?, place: place_of_answer(cx) })
    }
}

pub struct Return;

impl Feature for Return {
    fn table(&self) -> FeatureTable {
        ReturnConf::table("return", ContextArea::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(Text { text, place }) = conf.downcast_ref::<ReturnConf>().and_then(|conf| conf.r#return.clone()) {
            block.answers(place, Arc::new(ReturnText(text)));
        }
        Ok(())
    }
}

struct ReturnText(StreamTemplate);

impl Content for ReturnText {
    fn run<'a>(&'a self, s: &'a mut StreamSession, client: &'a mut SessionClient) -> ContentFuture<'a> {
        Box::pin(async move {
            s.doing = "returning text";
            let text = self.0.eval(s);
            if text.is_empty() {
                return ContentResult::Status(200);
            }
            match runtime::time::with_timeout(PATIENCE, client.send_all(&text)).await {
                Ok(Ok(())) => {
                    s.sent += text.len() as u64;
                    ContentResult::Status(200)
                }
                Ok(Err(_)) => ContentResult::Status(500),
                Err(_) => {
                    s.log(Severity::Info, format_args!("connection timed out (110: Connection timed out)"));
                    ContentResult::Status(200)
                }
            }
        })
    }
}
