//! empty_gif (nginx: `ngx_http_empty_gif_module`): one transparent pixel.

use bytes::Bytes;
use conf_schema::value::{Own, ValueList};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::core_table::Marker;
use http_engine::{BlockPlan, Feature, Flow, Handler, Request, ResponseBody};
use http_types::Method;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct GifConf from GifInput {
        /// Responds with a transparent GIF of one pixel.
        empty_gif: Own<ValueList<Marker>>,
    }
}

/// GIF89a: screen, two colours, control extension, image.
const PIXEL: &[u8] = b"GIF89a\x01\x00\x01\x00\x80\x01\x00\x00\x00\x00\xff\xff\xff\x21\xf9\x04\x01\x00\x00\x01\x00\
    \x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x4c\x01\x00\x3b";
/// nginx's `Last-Modified`: 28 September 1970.
const MODIFIED: i64 = 23_349_600;

pub struct EmptyGif;

impl Feature for EmptyGif {
    fn table(&self) -> FeatureTable {
        GifConf::table("empty_gif", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if conf.downcast_ref::<GifConf>().is_some_and(|conf| conf.empty_gif.is_some()) {
            block.location.content = Some(Arc::new(Pixel));
        }
        Ok(())
    }
}

struct Pixel;

impl Handler for Pixel {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        r.out.set_status(200);
        r.out.set_content_type("image/gif");
        r.out.set_content_length(Some(PIXEL.len() as u64));
        r.out.set_last_modified(Some(MODIFIED));
        Flow::Content(ResponseBody::Bytes(Bytes::from_static(PIXEL)))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_body_is_a_gif() {
        assert_eq!(super::PIXEL.len(), 43);
        assert!(super::PIXEL.starts_with(b"GIF89a") && super::PIXEL.ends_with(b";"));
    }
}
