//! Link options of `libshunt.so`.

fn main() {
    // Our constructor runs before those of other libraries, which may already call what we interpose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
