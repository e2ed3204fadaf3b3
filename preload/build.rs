//! Link options of `libshunt.so`.

fn main() {
    // Our constructor runs before those of other libraries, which may already call what we interpose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // What calls one of our hooks from in here means that hook, not a function of the program's by the same name (which may
    // itself go by an alias of ours).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
