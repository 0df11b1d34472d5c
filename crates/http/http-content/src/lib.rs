//! Features that serve files: static files, indexes, WebDAV, video, pictures, .htaccess.
//! One directory per feature; the server's `http_registry` lists all.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

/// Bodies of the fuzz targets of this crate.
pub mod fuzzing {
    pub use crate::dav::fuzzing::dav;
    pub use crate::hls::fuzzing::hls;
    pub use crate::image_filter::fuzzing::image;
    pub use crate::mp4::fuzzing::mp4;
}

use http_engine::Feature;

mod autoindex;
mod dav;
mod empty_gif;
mod flv;
mod hls;
mod htaccess;
mod image_filter;
mod index;
mod internal_redirect;
mod mp4;
mod random_index;
mod shared;
mod static_files;
mod try_files;

pub static FEATURES: &[&dyn Feature] = &[
    &autoindex::Autoindex,
    &dav::DavFeature,
    &empty_gif::EmptyGif,
    &flv::FlvFeature,
    &hls::HlsFeature,
    &htaccess::HtaccessFeature,
    &image_filter::ImageFilter,
    &index::Index,
    &internal_redirect::InternalRedirect,
    &mp4::Mp4Feature,
    &random_index::RandomIndex,
    &static_files::StaticFiles,
    &try_files::TryFiles,
];
