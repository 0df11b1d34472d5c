//! Descriptors by the server's reflection (`grpc.reflection.v1`, otherwise `v1alpha`, whose messages are equal).

use std::collections::BTreeSet;

use prost_reflect::DescriptorPool;
use prost_reflect::prost::{self, Message};
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};

use crate::engine::failure::LoadFailure;
use crate::engine::grpc::{PREFIX, split_message};
use crate::engine::job::Job;
use crate::engine::request::RequestSpec;
use crate::lab::probe::fetch_body;

const VERSIONS: [&str; 2] = ["v1", "v1alpha"];
/// Files of one service at most.
const FILES_MAX: usize = 1000;

#[derive(Clone, PartialEq, Message)]
struct ReflectionRequest {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "ReflectionQuestion", tags = "3, 4, 7")]
    question: Option<ReflectionQuestion>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ReflectionQuestion {
    #[prost(string, tag = "3")]
    File(String),
    #[prost(string, tag = "4")]
    Symbol(String),
    #[prost(string, tag = "7")]
    Services(String),
}

#[derive(Clone, PartialEq, Message)]
struct ReflectionResponse {
    #[prost(oneof = "ReflectionAnswer", tags = "4, 6, 7")]
    answer: Option<ReflectionAnswer>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ReflectionAnswer {
    #[prost(message, tag = "4")]
    Files(FileList),
    #[prost(message, tag = "6")]
    Services(ServiceList),
    #[prost(message, tag = "7")]
    Error(ReflectionError),
}

#[derive(Clone, PartialEq, Message)]
struct FileList {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct ServiceList {
    #[prost(message, repeated, tag = "1")]
    services: Vec<ServiceName>,
}

#[derive(Clone, PartialEq, Message)]
struct ServiceName {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ReflectionError {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    text: String,
}

/// Asks the server for the service of `/package.Service/Method`. Fails if the server has no reflection or no such
/// service, whose message lists the server's services.
pub fn reflect_service(job: &Job, path: &str) -> Result<DescriptorPool, String> {
    let name = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let mut version = VERSIONS[0];
    let services = match ask(job, version, ReflectionQuestion::Services(String::new()))? {
        Some(services) => Some(services),
        None => {
            version = VERSIONS[1];
            ask(job, version, ReflectionQuestion::Services(String::new()))?
        }
    };
    let services: Vec<String> = match services {
        Some(ReflectionAnswer::Services(list)) => list.services.into_iter().map(|service| service.name).collect(),
        Some(ReflectionAnswer::Error(error)) => return Err(format!("reflection of the server: {}", error.text)),
        Some(ReflectionAnswer::Files(_)) => return Err("reflection of the server: not the services asked for".into()),
        None => {
            return Err(format!(
                "{} has no reflection (grpc.reflection.v1, v1alpha): pass the service's --proto FILE",
                job.target.full_authority()
            ));
        }
    };
    let known = || {
        let own: Vec<&str> =
            services.iter().map(String::as_str).filter(|name| !name.starts_with("grpc.reflection.")).collect();
        own.join(", ")
    };
    if !services.iter().any(|service| service == name) {
        return Err(match name {
            "" => format!("the URL names no method: write /package.Service/Method (the server has {})", known()),
            _ => format!("the server has no service `{name}`: it has {}", known()),
        });
    }
    let mut files: Vec<FileDescriptorProto> = Vec::new();
    let mut asked = BTreeSet::new();
    let mut next = vec![ReflectionQuestion::Symbol(name.into())];
    while let Some(question) = next.pop() {
        let found = match ask(job, version, question)? {
            Some(ReflectionAnswer::Files(found)) => found.files,
            Some(ReflectionAnswer::Error(error)) => return Err(format!("reflection of `{name}`: {}", error.text)),
            _ => return Err(format!("reflection of `{name}`: not the descriptors asked for")),
        };
        for bytes in found {
            let file = FileDescriptorProto::decode(bytes.as_slice())
                .map_err(|e| format!("reflection of `{name}`: not a file's descriptor ({e})"))?;
            if !files.iter().any(|known| known.name == file.name) {
                files.push(file);
            }
        }
        let missing: BTreeSet<String> = (files.iter().flat_map(|file| file.dependency.iter()))
            .filter(|name| !files.iter().any(|file| file.name() == name.as_str()))
            .cloned()
            .collect();
        if missing.len() + files.len() > FILES_MAX {
            return Err(format!("reflection of `{name}`: more than {FILES_MAX} files"));
        }
        for file in missing {
            if asked.insert(file.clone()) {
                next.push(ReflectionQuestion::File(file));
            }
        }
    }
    DescriptorPool::from_file_descriptor_set(FileDescriptorSet { file: files })
        .map_err(|e| format!("reflection of `{name}`: {e}"))
}

/// Asks one question; `None` if the server does not know this version. Fails if the server does not answer.
fn ask(job: &Job, version: &str, question: ReflectionQuestion) -> Result<Option<ReflectionAnswer>, String> {
    let wrong = |why: &str| format!("reflection of {}: {why}; --proto FILE does without", job.target.full_authority());
    let message = ReflectionRequest { host: job.target.host.clone(), question: Some(question) }.encode_to_vec();
    let mut binary = vec![0];
    binary.extend_from_slice(&(message.len() as u32).to_be_bytes());
    binary.extend_from_slice(&message);
    let spec = RequestSpec {
        method: "POST".into(),
        headers: vec!["Content-Type: application/grpc".into(), "TE: trailers".into()],
        binary,
        ..RequestSpec::get(&format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"))
    };
    let (seen, body) = fetch_body(job, &spec).map_err(|why| match job.target.tls {
        None if why == LoadFailure::ClosedEarly.word() => wrong("the connection was closed (TLS needs grpcs://)"),
        Some(_) if why.contains("close_notify") => {
            wrong("the TLS connection was closed (a server that asks for certificates needs --cert and --key)")
        }
        _ => wrong(&why),
    })?;
    if seen.status != 200 {
        // A server may pass on the paths of one version only.
        let why = format!("it answers as a web server, with HTTP status {}, and not as one of gRPC", seen.status);
        return if version == VERSIONS[0] { Ok(None) } else { Err(wrong(&why)) };
    }
    if body.first().is_some_and(|flag| *flag > 1) {
        return Err(wrong("it answers as a web server, with HTTP status 200 and a page, and not as one of gRPC"));
    }
    let (frame, _) = split_message(&body);
    if frame.len() < PREFIX {
        // Only a status, which is UNIMPLEMENTED.
        return Ok(None);
    }
    if seen.length > body.len() as u64 || frame.len() < PREFIX + declared_length(frame) {
        return Err(wrong("the answer is too long"));
    }
    let answer = ReflectionResponse::decode(&frame[PREFIX..]).map_err(|e| wrong(&e.to_string()))?;
    Ok(answer.answer)
}

fn declared_length(frame: &[u8]) -> usize {
    let length = frame.get(1..PREFIX).and_then(|length| <[u8; 4]>::try_from(length).ok());
    length.map_or(0, |length| u32::from_be_bytes(length) as usize)
}
