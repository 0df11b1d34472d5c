//! `tidegate convert apache FILE...`: translates an Apache configuration into nginx's language.
//! `tidegate convert ingress FILE...`: runs `tidegate-controller convert-ingress`, a program of its own.

use advisor::convert::{self, Input, Options};
use std::ffi::OsString;
use std::path::Path;

pub const HELP: &str = "\
Usage: tidegate convert apache FILE ... [--root DIR] [--php ADDRESS] [--listen ADDRESS]
                               [--server-root DIR] [--snippet] [-o FILE]
       tidegate convert ingress FILE ... [--json] [--allow-snippets] [...]

Translates Apache virtual hosts (sites-available/*.conf) and .htaccess files into an nginx
configuration. Addresses, folders, proxies, TLS and logs become nginx's directives. All other rules
stay in Apache's language: .htaccess files stay where they are, and virtual hosts' sections become
htaccess_rules. A line without a translation becomes a comment and is listed with the reason. If it
decides about access, its place is denied; where that cannot be said, there is no output.

  tidegate convert apache /etc/apache2/sites-enabled/*.conf > nginx.conf
  tidegate convert apache /var/www/html/.htaccess -o site.conf
  tidegate convert apache site.conf /var/www/html/.htaccess --php 127.0.0.1:9000

  --root DIR         document root of .htaccess files outside of all virtual hosts
                     (default: the directory of the first one)
  --php ADDRESS      FastCGI server for scripts (default: unix:/run/php/php-fpm.sock);
                     off: there are no scripts
  --listen ADDRESS   listen address of servers without a virtual host (default: 80)
  --server-root DIR  base of Apache's relative paths (default: /etc/apache2)
  --snippet          print only the server blocks, for an include
  -o FILE            output file (default: standard output)

The result reads .htaccess files at each request, as Apache does: tidegate explain htaccess.

\"tidegate convert ingress\" says what becomes of the annotations of Kubernetes' Ingresses. It runs
tidegate-controller convert-ingress, which is beside this program or in a directory of PATH.

Exit code: 0 if everything was translated, 1 if some lines were not, 2 if there is no result: a file
cannot be read, or a line that decides about access cannot be translated.
";

/// Program that knows Kubernetes.
const CONTROLLER: &str = "tidegate-controller";

pub fn run_convert(arguments: &[OsString]) -> i32 {
    if arguments.first().is_some_and(|source| source == "ingress") {
        return ingress(&arguments[1..]);
    }
    match convert(arguments) {
        Ok(left) => i32::from(left),
        Err(words) => {
            eprintln!("tidegate: {words}");
            2
        }
    }
}

/// Replaces the process by the controller: the one beside the program, then one of `PATH`.
fn ingress(arguments: &[OsString]) -> i32 {
    use std::os::unix::process::CommandExt as _;
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join(CONTROLLER)));
    let programs = beside.into_iter().map(std::path::PathBuf::into_os_string).chain([CONTROLLER.into()]);
    for program in programs {
        let error = std::process::Command::new(&program).arg("convert-ingress").args(arguments).exec();
        if error.kind() != std::io::ErrorKind::NotFound {
            eprintln!("tidegate: {} cannot be run {}", program.display(), observe::os_error(&error));
            return 2;
        }
    }
    eprintln!(
        "tidegate: {CONTROLLER} is not installed: it is neither beside this program nor in a directory of PATH\n  = \
         the package of the controller has it; \"tidegate convert apache\" needs no other program"
    );
    2
}

/// Returns whether lines were left untranslated.
fn convert(arguments: &[OsString]) -> Result<bool, String> {
    let mut words = arguments.iter().map(|a| a.to_string_lossy().into_owned());
    match words.next().as_deref() {
        Some("apache") => {}
        Some(other) => return Err(format!("unknown source \"{other}\"; supported: apache, ingress")),
        None => {
            return Err(
                "no source given; supported: apache, ingress\n  = \"tidegate convert --help\" lists the options".into(),
            );
        }
    }
    let (mut options, mut files, mut root, mut out) = (Options::default(), Vec::new(), None, None);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("option \"{word}\" requires a value"));
        match word.as_str() {
            "--root" => root = Some(value()?),
            "--php" => options.php = value()?,
            "--listen" => options.listen = value()?,
            "--server-root" => options.server_root = value()?,
            "--snippet" => options.snippet = true,
            "-o" => out = Some(value()?),
            _ if word.starts_with('-') && word != "-" => return Err(format!("invalid option: \"{word}\"")),
            _ => files.push(word),
        }
    }
    if files.is_empty() {
        return Err("no file given; \"tidegate convert --help\" lists the options".into());
    }
    let mut inputs = Vec::new();
    for name in files {
        let bytes = std::fs::read(&name).map_err(|e| format!("open() \"{name}\" failed {}", observe::os_error(&e)))?;
        let path = std::path::absolute(&name).map_err(|e| format!("{name}: {e}"))?;
        let is_folder = path.file_name().is_some_and(|file| file.to_string_lossy().ends_with(".htaccess"));
        let folder = path.parent().unwrap_or(Path::new("/")).display().to_string();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        inputs.push(Input { name, text, folder: is_folder.then_some(folder), in_place: true });
    }
    if let Some(root) = root {
        let root = std::path::absolute(&root).map_err(|e| format!("{root}: {e}"))?;
        // Without a final slash.
        let root: std::path::PathBuf = root.components().collect();
        let first = inputs.iter_mut().find(|input| input.folder.is_some());
        let first = first.ok_or("option \"--root\" is for .htaccess files, and none is given")?;
        // A file from elsewhere stands for that of the root.
        if first.folder.as_ref().is_none_or(|folder| !Path::new(folder).starts_with(&root)) {
            (first.folder, first.in_place) = (Some(root.display().to_string()), false);
        }
        options.root = Some(root.display().to_string());
    }
    let converted = convert::convert_apache(&inputs, &options, &included)
        .map_err(|(file, e)| format!("{file}:{}: {}", e.line, e.text))?;
    match out {
        Some(path) => std::fs::write(&path, &converted.text)
            .map_err(|e| format!("\"{path}\" cannot be written {}", observe::os_error(&e)))?,
        None => base::out!("{}", converted.text),
    }
    for left in &converted.left {
        eprintln!("{}:{}: not converted: {}\n  = {}", left.file, left.line, left.text, left.why);
    }
    if !converted.left.is_empty() {
        let count = converted.left.len();
        eprintln!("{count} {} not converted", if count == 1 { "line was" } else { "lines were" });
    }
    Ok(!converted.left.is_empty())
}

/// Files of an `Include`, in the order of their names: a file, a directory, or a pattern with `*` and `?` in its last part.
fn included(path: &str) -> Result<Vec<(String, String)>, String> {
    let (folder, pattern) = match path.trim_end_matches('/').rsplit_once('/') {
        _ if Path::new(path).is_dir() => (path, "*"),
        Some((folder, name)) if name.contains(['*', '?', '[']) => (folder, name),
        _ => return Ok(read_included(Path::new(path))?.into_iter().collect()),
    };
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.retain(|name| convert::matches_glob(pattern.as_bytes(), name.as_encoded_bytes()));
    names.sort();
    let mut files = Vec::new();
    for name in names {
        files.extend(read_included(&Path::new(folder).join(name))?);
    }
    Ok(files)
}

fn read_included(path: &Path) -> Result<Option<(String, String)>, String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("open() \"{}\" failed {}", path.display(), observe::os_error(&e))),
    }
}
