//! `file://` URLs under one folder that the profile opens.
//!
//! The path is walked from the folder down, one name at a time, by handles, and no name may be a link: what was checked is what
//! is read, whatever happens to the names in between. `..` does not exist.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::error::ImageRefusal;

const SCHEME: &str = "file://";

/// Does `text` begin as a file URL.
pub fn is_file_url(text: &str) -> bool {
    text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// The file that a URL names: a path below `folder`, or an absolute one that begins with it.
///
/// # Errors
/// It is not in the folder, not a regular file, or longer than `max_bytes`.
pub fn read(url: &str, folder: &Path, max_bytes: u64) -> Result<Vec<u8>, ImageRefusal> {
    let path = below(url, folder)?;
    let mut file = open(folder, &path).map_err(|error| ImageRefusal::not_fetched(refusal(error)))?;
    let about = file.metadata().map_err(|_| ImageRefusal::not_fetched("the file cannot be read"))?;
    if !about.is_file() {
        return Err(ImageRefusal::not_fetched("it is not a regular file"));
    }
    if about.len() > max_bytes {
        return Err(ImageRefusal::too_long(max_bytes));
    }
    let mut bytes = Vec::new();
    let read = (&mut file).take(max_bytes.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|_| ImageRefusal::not_fetched("the file cannot be read"))?;
    // It may have grown since.
    if bytes.len() as u64 > max_bytes {
        return Err(ImageRefusal::too_long(max_bytes));
    }
    Ok(bytes)
}

/// Names alone.
fn below(url: &str, folder: &Path) -> Result<PathBuf, ImageRefusal> {
    let text = url.get(SCHEME.len()..).unwrap_or_default();
    let text = text.strip_prefix("localhost/").map_or(text.to_owned(), |path| format!("/{path}"));
    let bytes: Vec<u8> = percent_decode_str(&text).collect();
    let path = Path::new(OsStr::from_bytes(&bytes));
    let inner = if path.is_absolute() { path.strip_prefix(folder).ok() } else { Some(path) };
    let inner =
        inner.filter(|path| path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)));
    let names: PathBuf =
        inner.into_iter().flat_map(Path::components).filter(|part| *part != Component::CurDir).collect();
    if names.as_os_str().is_empty() {
        return Err(ImageRefusal::not_fetched(
            "the path is not one of a file under the folder that is open (`images.dir`)",
        ));
    }
    Ok(names)
}

fn open(folder: &Path, path: &Path) -> Result<File, Errno> {
    // Not to wait for whoever would write into a pipe.
    let own = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    // The folder itself is the profile's and may be a link.
    let mut at: OwnedFd = openat(CWD, folder, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?;
    let mut names = path.components().map(Component::as_os_str).peekable();
    while let Some(name) = names.next() {
        let kind = if names.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
        at = openat(&at, name, own | kind, Mode::empty())?;
    }
    Ok(File::from(at))
}

fn refusal(error: Errno) -> &'static str {
    match error {
        Errno::NOENT => "there is no such file",
        Errno::LOOP | Errno::NOTDIR => "a part of the path is a link, or no folder: links are not followed",
        Errno::ACCESS | Errno::PERM => "the server may not read the file",
        _ => "the file cannot be opened",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::error::Fault;
    use super::*;

    struct Folder {
        _own: tempfile::TempDir,
        root: PathBuf,
    }

    /// `secret` beside `media`, which is open: a.png, sub/b c.png, links out and in, a pipe.
    fn folder() -> Folder {
        let own = tempfile::tempdir().unwrap();
        let root = own.path().join("media");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(own.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("a.png"), "picture").unwrap();
        std::fs::write(root.join("sub/b c.png"), "picture").unwrap();
        symlink("../secret", root.join("out.png")).unwrap();
        symlink("a.png", root.join("in.png")).unwrap();
        symlink("/", root.join("everything")).unwrap();
        symlink("sub", root.join("alias")).unwrap();
        rustix::fs::mknodat(CWD, root.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        Folder { _own: own, root }
    }

    #[test]
    fn files_in_the_folder_are_read_by_both_kinds_of_path() {
        let folder = folder();
        let absolute = format!("file://{}/sub/b%20c.png", folder.root.display());
        let named = format!("FILE://localhost{}/a.png", folder.root.display());
        for url in ["file://a.png", "file://./sub/b c.png", "file://sub/b%20c.png", &absolute, &named] {
            assert_eq!(read(url, &folder.root, 100).as_deref(), Ok(&b"picture"[..]), "{url}");
        }
        assert_eq!(read("file://a.png", &folder.root, 6).unwrap_err().fault, Fault::TooLarge);
    }

    #[test]
    fn nothing_outside_is_read_whatever_the_spelling() {
        let folder = folder();
        let outside = folder.root.parent().unwrap().join("secret");
        let urls = [
            "file://../secret".to_owned(),
            "file://sub/../../secret".to_owned(),
            "file://%2e%2e/secret".to_owned(),
            "file://sub%2f..%2f..%2fsecret".to_owned(),
            format!("file://{}", outside.display()),
            format!("file://{}/../secret", folder.root.display()),
            format!("file://{}x/secret", folder.root.display()),
            "file:///etc/passwd".to_owned(),
            "file://out.png".to_owned(),
            "file://in.png".to_owned(),
            "file://alias/b%20c.png".to_owned(),
            "file://everything/etc/passwd".to_owned(),
            "file://sub".to_owned(),
            "file://pipe".to_owned(),
            "file://a.png%00.jpg".to_owned(),
            "file://a.png/x".to_owned(),
            "file://none.png".to_owned(),
            "file://".to_owned(),
            "file://.".to_owned(),
            format!("file://{}", folder.root.display()),
        ];
        for url in urls {
            let told = read(&url, &folder.root, 1 << 20).unwrap_err();
            assert_eq!(told.fault, Fault::NotFetched, "{url}: {told}");
            assert!(!told.message.contains("secret"), "{told}");
        }
    }
}
