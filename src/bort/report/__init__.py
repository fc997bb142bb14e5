"""What a person looks at: pictures, figures and pages out of runs."""
