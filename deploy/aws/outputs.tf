output "address" { value = "https://${aws_lb.this.dns_name}" }
output "database" { value = aws_db_instance.this.address }
output "store_secret" { value = aws_secretsmanager_secret.store.arn }
output "keys_secret" { value = aws_secretsmanager_secret.keys.arn }
output "database_admin_secret" { value = one(aws_db_instance.this.master_user_secret[*].secret_arn) }
