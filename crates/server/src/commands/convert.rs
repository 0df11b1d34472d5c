//! `tidegate convert apache FILE...`: translates an Apache configuration into nginx's language.

use advisor::convert::{self, Input, Options};
use std::ffi::OsString;
use std::path::Path;

pub const HELP: &str = "\
Usage: tidegate convert apache FILE ... [--root DIR] [--php ADDRESS] [--listen ADDRESS]
                               [--server-root DIR] [--snippet] [-o FILE]

Translates Apache virtual hosts (sites-available/*.conf) and .htaccess files into an nginx
configuration. Front controllers become try_files, rewrite rules become rewrite, return and if,
access rules become allow and deny. A line without a translation becomes a comment and is listed
with the reason. Access rules without a translation become deny all.

  tidegate convert apache /etc/apache2/sites-enabled/*.conf > nginx.conf
  tidegate convert apache /var/www/html/.htaccess -o site.conf
  tidegate convert apache site.conf /var/www/html/.htaccess --php 127.0.0.1:9000

  --root DIR         document root of .htaccess files outside of all virtual hosts
                     (default: the directory of the first one)
  --php ADDRESS      FastCGI server for scripts (default: unix:/run/php/php-fpm.sock)
  --listen ADDRESS   listen address of servers without a virtual host (default: 80)
  --server-root DIR  base of Apache's relative paths (default: /etc/apache2)
  --snippet          print only the server blocks, for an include
  -o FILE            output file (default: standard output)

Rules that Apache runs again on their own result ([N], [C], rules chained across directories) have
no translation; \"htaccess on\" interprets the .htaccess files: tidegate explain htaccess.

Exit code: 0 if everything was translated, 1 if some lines were not, 2 if a file cannot be read.
";

pub fn run(arguments: &[OsString]) -> i32 {
    match convert(arguments) {
        Ok(left) => i32::from(left),
        Err(words) => {
            eprintln!("tidegate: {words}");
            2
        }
    }
}

/// Returns whether lines were left untranslated.
fn convert(arguments: &[OsString]) -> Result<bool, String> {
    let mut words = arguments.iter().map(|a| a.to_string_lossy().into_owned());
    match words.next().as_deref() {
        Some("apache") => {}
        Some(other) => return Err(format!("unknown source \"{other}\"; supported: apache")),
        None => {
            return Err("no source given; supported: apache\n  = \"tidegate convert --help\" lists the options".into());
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
        let bytes = std::fs::read(&name).map_err(|e| format!("open() \"{name}\" failed {}", observe::os(&e)))?;
        let path = std::path::absolute(&name).map_err(|e| format!("{name}: {e}"))?;
        let is_folder = path.file_name().is_some_and(|file| file.to_string_lossy().ends_with(".htaccess"));
        let folder = path.parent().unwrap_or(Path::new("/")).display().to_string();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        inputs.push(Input { name, text, folder: is_folder.then_some(folder) });
    }
    if let Some(root) = root {
        let first = inputs.iter_mut().find(|input| input.folder.is_some());
        first.ok_or("option \"--root\" is for .htaccess files, and none is given")?.folder = Some(root);
    }
    let converted = convert::apache(&inputs, &options).map_err(|(file, e)| format!("{file}:{}: {}", e.line, e.text))?;
    match out {
        Some(path) => std::fs::write(&path, &converted.text)
            .map_err(|e| format!("\"{path}\" cannot be written {}", observe::os(&e)))?,
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
