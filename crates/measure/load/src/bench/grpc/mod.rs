//! gRPC of a run (`grpc://`, `grpcs://`): descriptors from .proto files, a set of descriptors or the server's
//! reflection, and the calls of the requests.

mod reflection;

use std::path::{Path, PathBuf};

use prost_reflect::DescriptorPool;

use super::cli::Options;
use crate::engine::grpc::{GrpcJob, MessageForm};
use crate::engine::job::{Http2, Job, Target};
use crate::engine::request::RequestSpec;

/// Turns requests into calls, all of them with a URL of gRPC (`all`), otherwise the steps with `grpc`: writes their paths
/// as `/package.Service/Method`, and makes one request of each message of an array for methods that take one message.
/// Returns the job's part. Fails on unusable descriptors, methods and messages, with place and suggestion.
pub fn prepare_calls(o: &Options, target: &Target, all: bool, list: &mut Vec<RequestSpec>) -> Result<GrpcJob, String> {
    for call in list.iter_mut().filter(|call| all || !call.grpc.is_empty()) {
        if all && call.grpc.is_empty() && o.session.is_some() && call.path.is_empty() {
            return Err("--session: a step has neither `grpc`, the method of a call, nor a path".into());
        }
        if !call.grpc.is_empty() && !call.path.is_empty() && call.path != call.grpc {
            return Err(format!("grpc = \"{}\": a call has no path of its own (`{}`)", call.grpc, call.path));
        }
        call.path = method_path(if call.grpc.is_empty() { &call.path } else { &call.grpc });
        call.grpc = call.path.clone();
        match std::mem::take(&mut call.data) {
            serde_json::Value::Null => {}
            _ if !call.body.is_empty() => return Err(format!("{}: a call has `data` or `body`, not both", call.path)),
            serde_json::Value::String(text) => call.body = text,
            other => call.body = other.to_string(),
        }
        if let Some(other) =
            call.extract.values().find(|from| !from.starts_with("json:") && !from.starts_with("regex:"))
        {
            return Err(format!(
                "{}: extract reads json: and regex: from the answer of a call, not `{other}`",
                call.path
            ));
        }
        if call.method != "GET" && call.method != "POST" {
            return Err(format!("--method {}: calls of gRPC are POST requests", call.method));
        }
        call.method = "POST".into();
    }
    let pool = match (o.proto.as_slice(), &o.protoset) {
        ([], Some(path)) => read_set(path)?,
        ([], None) => {
            if target.proxy.is_some() {
                return Err("--proxy: the server's reflection is not asked through a proxy: pass --proto FILE".into());
            }
            // The reflection has the metadata, TLS and address of the calls.
            let http2 = Some(Http2::default());
            let job = Job { headers: o.headers.clone(), http2, ..Job::closed(target.clone(), 1, 1.0) };
            let paths = list.iter().filter(|call| !call.grpc.is_empty()).map(|call| call.path.as_str());
            reflect_services(&job, paths)?
        }
        (files, _) => compile_files(files, &o.import_path)?,
    };
    let mut calls = Vec::new();
    for call in list.drain(..) {
        if call.grpc.is_empty() {
            calls.push(call);
            continue;
        }
        let form = MessageForm::find(&pool, &call.path)?;
        if o.stream_interval.is_some() && !form.is_client_streaming() {
            return Err(format!("--stream-interval: {} takes one message", call.path));
        }
        match single_messages(&call.body).filter(|_| !form.is_client_streaming() && o.session.is_none()) {
            Some(messages) if messages.is_empty() => {
                return Err(format!("{}: the array of messages is empty, and a call takes one", call.path));
            }
            Some(messages) => {
                let weight = call.weight / messages.len() as f64;
                calls.extend(messages.into_iter().map(|body| RequestSpec { body, weight, ..call.clone() }));
            }
            None => calls.push(call),
        }
    }
    *list = calls;
    Ok(GrpcJob { descriptors: pool.encode_to_vec(), interval: o.stream_interval.unwrap_or(0.0), gzip: o.grpc_gzip })
}

/// Asks the server for the services of all methods.
fn reflect_services<'a>(job: &Job, paths: impl Iterator<Item = &'a str>) -> Result<DescriptorPool, String> {
    let mut pool = DescriptorPool::new();
    let mut known: Vec<&str> = Vec::new();
    for path in paths {
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        if known.contains(&service) {
            continue;
        }
        known.push(service);
        let own = reflection::reflect_service(job, path)?;
        let files: Vec<_> = own.file_descriptor_protos().cloned().collect();
        pool.add_file_descriptor_protos(files).map_err(|e| format!("reflection of `{service}`: {e}"))?;
    }
    Ok(pool)
}

/// The elements of an array, as JSON.
fn single_messages(body: &str) -> Option<Vec<String>> {
    let items: Vec<serde_json::Value> = serde_json::from_str(body.trim()).ok()?;
    Some(items.iter().map(serde_json::Value::to_string).collect())
}

/// Writes `package.Service.Method` and `package.Service/Method` as a path.
fn method_path(text: &str) -> String {
    let name = text.trim_start_matches('/');
    match name.rsplit_once('.') {
        Some((service, method)) if !name.contains('/') && service.contains('.') => format!("/{service}/{method}"),
        _ => format!("/{name}"),
    }
}

/// Compiles .proto files. Fails with file, line and column.
fn compile_files(files: &[PathBuf], folders: &[PathBuf]) -> Result<DescriptorPool, String> {
    let mut folders = folders.to_vec();
    for file in files {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        // A file is found in the folders, or is in its own.
        if !file.exists() && !folders.iter().any(|folder| folder.join(file).exists()) {
            return Err(format!("--proto {}: there is no such file, also not in --import-path", file.display()));
        }
        let inside = folders.iter().any(|folder| file.starts_with(folder) || folder.join(file).exists());
        if !inside && !folders.iter().any(|folder| folder == parent) {
            folders.push(parent.to_path_buf());
        }
    }
    let wrong = |e: &protox::Error| {
        // The text for developers has the place, and that for users the reason.
        let (place, reason) = (format!("{e:?}"), e.to_string());
        let place = place.strip_suffix(&reason).filter(|place| place.ends_with(": "));
        let hint = if e.is_file_not_found() { "; --import-path DIR names a folder of imports" } else { "" };
        match (place, e.file()) {
            (Some(place), _) => format!("--proto {place}{reason}{hint}"),
            (None, Some(file)) => format!("--proto {file}: {reason}{hint}"),
            (None, None) => format!("--proto: {reason}{hint}"),
        }
    };
    let mut compiler = protox::Compiler::new(&folders).map_err(|e| wrong(&e))?;
    compiler.include_imports(true);
    for file in files {
        compiler.open_file(file).map_err(|e| wrong(&e))?;
    }
    Ok(compiler.descriptor_pool())
}

/// Reads a set of descriptors, as `protoc --descriptor_set_out --include_imports` writes it.
fn read_set(path: &Path) -> Result<DescriptorPool, String> {
    let bytes = std::fs::read(path).map_err(|e| figures::errors::unreadable_file(path, &e))?;
    DescriptorPool::decode(bytes.as_slice()).map_err(|e| {
        format!("{}: {e}; write it with `protoc --include_imports --descriptor_set_out=FILE`", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_written_as_people_know_them() {
        for text in ["/a.b.S/M", "a.b.S/M", "a.b.S.M", "/a.b.S.M"] {
            assert_eq!(method_path(text), "/a.b.S/M");
        }
        assert_eq!(method_path("/a.S"), "/a.S");
        assert_eq!(method_path("/"), "/");
    }

    #[test]
    fn an_array_has_a_message_for_each_call() {
        assert_eq!(single_messages(" [{\"a\": 1}, {}] ").unwrap(), ["{\"a\":1}", "{}"]);
        assert!(single_messages("{}").is_none() && single_messages("[{{seq}}]").is_none());
    }

    #[test]
    fn wrong_files_name_the_place() {
        let folder = std::env::temp_dir().join(format!("tidegate-proto-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            compile_files(&[path], &[])
        };
        let syntax = file("a.proto", "syntax = \"proto3\";\nmessage A { int32 x 1; }\n").unwrap_err();
        assert!(syntax.contains("a.proto:2:21"), "{syntax}");
        let import = file("b.proto", "syntax = \"proto3\";\nimport \"none.proto\";\n").unwrap_err();
        assert!(import.contains("none.proto") && import.contains("--import-path"), "{import}");
        let kind = file("c.proto", "syntax = \"proto3\";\nmessage A { Nope x = 1; }\n").unwrap_err();
        assert!(kind.contains("c.proto") && kind.contains("Nope"), "{kind}");
        let well_known = "syntax = \"proto3\";\nimport \"google/protobuf/timestamp.proto\";\n\
                          message A { google.protobuf.Timestamp t = 1; }\nservice S { rpc M(A) returns (A); }";
        let pool = file("d.proto", well_known).unwrap();
        assert!(MessageForm::find(&pool, "/S/M").is_ok());
        assert!(compile_files(&["/nowhere/x.proto".into()], &[]).unwrap_err().contains("no such file"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
