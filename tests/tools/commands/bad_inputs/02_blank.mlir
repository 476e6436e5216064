

// Only a comment.

