//! Sends manifests to the API server.

use std::path::{Path, PathBuf};

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{self, Scope};
use kube::{Client, Error};
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

/// Time that a new definition may take until its kind can be written.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);
const FIELD_MANAGER: &str = "fake-kubelet";

/// Waits until the API server has its own roles and priority levels: before, it refuses users.
async fn wait_ready(client: &Client) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let request = http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
        match client.request_text(request).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(format!("the API server is not ready: {error}")),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Applies all objects of files and folders, definitions and namespaces first, except of some kinds.
pub async fn apply_manifests(paths: &[PathBuf], skip: &[String]) -> Result<(), String> {
    let client = Client::try_default().await.map_err(|error| error.to_string())?;
    wait_ready(&client).await?;
    let mut objects = Vec::new();
    for path in paths {
        read(path, &mut objects)?;
    }
    objects.retain(|object| !skip.iter().any(|kind| object["kind"] == kind.as_str()));
    objects.sort_by_key(order);
    for object in &objects {
        apply(&client, object).await?;
    }
    Ok(())
}

fn order(object: &Value) -> u8 {
    match object["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        _ => 2,
    }
}

/// Reads the objects of a file, or of all files of a folder.
fn read(path: &Path, objects: &mut Vec<Value>) -> Result<(), String> {
    let error = |error: String| format!("{}: {error}", path.display());
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|reason| error(reason.to_string()))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|end| end == "yaml"));
        files.sort();
        return files.iter().try_for_each(|file| read(file, objects));
    }
    let text = std::fs::read_to_string(path).map_err(|reason| error(reason.to_string()))?;
    for document in text.split("\n---").filter(|document| document.lines().any(has_content)) {
        // Definitions of Gateway API are larger than the default permits.
        let options = serde_saphyr::options! { budget: None };
        let value: Value =
            serde_saphyr::from_str_with_options(document, options).map_err(|reason| error(reason.to_string()))?;
        // A list of kustomize has neither.
        if value["kind"].is_string() && value["metadata"]["name"].is_string() {
            objects.push(value);
        }
    }
    Ok(())
}

fn has_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#') && line != "---"
}

/// Applies an object; waits for the definition of its kind.
async fn apply(client: &Client, value: &Value) -> Result<(), String> {
    let object: DynamicObject = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let describe = |words: &str| format!("{} {name}: {words}", value["kind"].as_str().unwrap_or_default());
    let end = Instant::now() + PATIENCE;
    loop {
        match try_apply(client, &name, &object).await {
            Ok(()) => return Ok(()),
            Err(Error::Api(status)) if status.code != 404 => return Err(describe(&status.message)),
            Err(error) if Instant::now() > end => return Err(describe(&error.to_string())),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn try_apply(client: &Client, name: &str, object: &DynamicObject) -> Result<(), Error> {
    let api = api_of(client, object).await?;
    api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await?;
    Ok(())
}

/// Deletes all objects of files and folders. One that does not exist is no error.
pub async fn delete_manifests(paths: &[PathBuf]) -> Result<(), String> {
    let client = Client::try_default().await.map_err(|error| error.to_string())?;
    let mut objects = Vec::new();
    for path in paths {
        read(path, &mut objects)?;
    }
    for value in objects {
        let object: DynamicObject = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let name = object.metadata.name.clone().unwrap_or_default();
        let api = api_of(&client, &object).await.map_err(|error| error.to_string())?;
        match api.delete(&name, &DeleteParams::default()).await {
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(format!("{name}: {error}")),
            Ok(_) => {}
        }
    }
    Ok(())
}

async fn api_of(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>, Error> {
    let types = object.types.clone().unwrap_or_default();
    let (group, version) = types.api_version.rsplit_once('/').unwrap_or(("", &types.api_version));
    let kind = GroupVersionKind::gvk(group, version, &types.kind);
    let (resource, capabilities): (ApiResource, _) = discovery::pinned_kind(client, &kind).await?;
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    Ok(match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn comments_and_separators_are_no_objects() {
        let lines = ["# License", "", "---", "kind: Service"].map(super::has_content);
        assert_eq!(lines, [false, false, false, true]);
    }
}
