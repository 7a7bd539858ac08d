//! A data node that consists of several nodes.
