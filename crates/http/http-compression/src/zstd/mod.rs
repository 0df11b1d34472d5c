//! Zstandard (RFC 8878), dynamic and from files; directives as in the module zstd-nginx-module.

use crate::shared::compress::{self, Coding};
use crate::shared::static_coded::{StaticCoded, StaticMode};
use conf_schema::value::{Between, Buffers, Flag, Size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::media_types::MediaTypes;
use http_engine::{BlockPlan, Feature, Filter, FilterOrder, HandlerOrder, Request, ResponseBody};
use http_types::Known;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct ZstdConf from ZstdInput {
        /// Compresses responses for clients that accept `zstd`.
        zstd: Flag = "off",
        /// Compression level, from 1 (fastest).
        /// Differs: a response is compressed in frames of 128 KB, or with a smaller window, if `generated_body_memory`
        /// has no room for the encoder's state.
        zstd_comp_level: Between<1, 19> = "1",
        /// Minimum length of a response to compress, by its `Content-Length`.
        zstd_min_length: Size = "20",
        /// Media types to compress, besides text/html.
        zstd_types: Types = "text/html",
        /// Number and size of buffers. The value is checked and has no effect: the compressor sizes its own.
        zstd_buffers: Buffers = "32 4k",
        /// Serves the file with the suffix `.zst` instead of the original, to clients that accept it.
        zstd_static: StaticMode = "off",
    }
}

#[derive(Clone)]
pub struct Types(MediaTypes);

impl ValueKind for Types {
    const SYNTAX: &'static str = "media-type ...";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(Types)
    }
}

pub struct Zstd;

impl Feature for Zstd {
    fn table(&self) -> FeatureTable {
        ZstdConf::table("zstd", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<ZstdConf>() else { return Ok(()) };
        if conf.zstd_static != StaticMode::Off {
            let handler = StaticCoded { coding: Coding::Zstd, mode: conf.zstd_static };
            block.handle(HandlerOrder::CompressedFiles, Arc::new(handler));
        }
        if conf.zstd {
            block.location.filters.push((FilterOrder::Compress, Arc::new(Compress(conf))));
        }
        Ok(())
    }
}

struct Compress(Arc<ZstdConf>);

impl Filter for Compress {
    fn name(&self) -> &'static str {
        "zstd"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        let conf = &self.0;
        if !compress::may_compress(r, conf.zstd_min_length.0, &conf.zstd_types.0) {
            return Ok(body);
        }
        r.out.vary_by_encoding(true);
        let accept = r.header(Known::AcceptEncoding).unwrap_or(b"");
        let quality = compress::coding_quality(accept, "zstd");
        // A client that prefers gzip gets it from the next filter, if enabled.
        if quality == 0 || compress::coding_quality(accept, "gzip") > quality {
            return Ok(body);
        }
        compress::compress_body(r, body, Coding::Zstd, conf.zstd_comp_level.0 as u32, 0)
    }
}
